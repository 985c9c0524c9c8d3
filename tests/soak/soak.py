"""Six processes move data for minutes while they are killed, stopped and restarted: python soak.py [--seconds N].

Ends with one line and status 0, or says what was wrong and ends with status 1. Needs the built package on the path
(`make soak` does all of it).
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from typing import Any

WORKER = pathlib.Path(__file__).with_name("worker.py")
PROCESSES = 6
ELDERS = 2  # of them, that are stopped but never killed: what they use can be followed

HANG_SECONDS = 40.0  # without a word; a call may take 5 s, a step of a worker is a few calls
END_SECONDS = 40.0  # from the word to the end of a process
LONG_STOP_SECONDS = 7.0  # longer than a transfer's deadline
MOST_DESCRIPTORS = 250  # of a worker: five peers, over sockets and shared memory
MOST_PRIVATE_MIB = 700
GROWTH_DESCRIPTORS = 25  # of an elder, between the second quarter and the last
GROWTH_MIB = 64
WARM_SECONDS = 30.0  # a shorter quarter may pass before an elder has met all its peers: no measure of growth
PROGRESS_SECONDS = 5.0


class Failed(Exception):
    """What was wrong, in one line."""


@dataclass
class Usage:
    descriptors: int = 0
    private_mib: float = 0.0

    def raise_to(self, other: "Usage") -> None:
        self.descriptors = max(self.descriptors, other.descriptors)
        self.private_mib = max(self.private_mib, other.private_mib)


def usage_of(pid: int) -> Usage:
    fields = {}
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            key, _, value = line.partition(":")
            fields[key] = value
    return Usage(len(os.listdir(f"/proc/{pid}/fd")), int(fields["RssAnon"].split()[0]) / 1024)


@dataclass
class Slot:
    """One worker, over all its lives."""

    number: int
    name: str
    process: subprocess.Popen[bytes] | None = None
    life: int = 0
    regions: list[Any] = field(default_factory=list)  # as the worker has announced them
    counts: dict[str, int] = field(default_factory=dict)  # of this life
    heard: float = 0.0
    stopped_until: float = 0.0
    stale: bool = False  # has not been told all
    over: bool = False  # it has said so
    rest: bytes = b""  # of a line
    middle: Usage = field(default_factory=Usage)  # most it used in the second quarter, and the last
    late: Usage = field(default_factory=Usage)


class Soak:
    def __init__(self, seconds: float, seed: int, folder: pathlib.Path) -> None:
        self.seconds, self.folder = seconds, folder
        self.random = random.Random(seed)
        self.selector = selectors.DefaultSelector()
        self.slots = [Slot(number, f"127.0.0.1:{port}") for number, port in enumerate(free_ports())]
        self.totals = dict.fromkeys(("transfers", "failed", "verified", "excused", "withdrawn"), 0)
        self.kills = self.stops = 0
        self.begin = time.monotonic()
        self.next_event = self.next_progress = self.begin

    # Processes.

    def start(self, slot: Slot) -> None:
        slot.life += 1
        environment = os.environ | {
            "MC_LEGACY_RPC_PORT_BINDING": "1", "MC_TRANSFER_TIMEOUT": "5",
            "MC_FORCE_TCP": str(int(self.random.random() < 0.34))}
        command = [sys.executable, str(WORKER), str(slot.number), slot.name, str(PROCESSES),
                   str(slot.life), str(self.random.getrandbits(32))]
        with open(self.words_of(slot), "ab") as words:
            slot.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=words, env=environment)
        assert slot.process.stdin and slot.process.stdout
        os.set_blocking(slot.process.stdin.fileno(), False)
        os.set_blocking(slot.process.stdout.fileno(), False)
        self.selector.register(slot.process.stdout, selectors.EVENT_READ, slot)
        slot.heard, slot.rest, slot.stale = time.monotonic(), b"", True

    def words_of(self, slot: Slot) -> pathlib.Path:
        return self.folder / f"worker-{slot.number}.log"

    def forget(self, slot: Slot) -> None:
        """The process has ended, and is reaped."""
        assert slot.process and slot.process.stdin and slot.process.stdout
        self.selector.unregister(slot.process.stdout)
        slot.process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            slot.process.stdin.close()
        slot.process = None
        for key, value in slot.counts.items():
            self.totals[key] += value
        slot.counts, slot.regions, slot.stopped_until = {}, [], 0.0

    def kill_all(self) -> None:
        for slot in self.slots:
            if slot.process is not None:
                slot.process.kill()
                slot.process.wait()
                self.forget(slot)

    # What they say.

    def read(self, slot: Slot) -> None:
        assert slot.process and slot.process.stdout
        data = slot.process.stdout.read() or b""
        if not data and slot.process.poll() is not None:
            self.ended(slot)
            return
        *lines, slot.rest = (slot.rest + data).split(b"\n")
        for line in lines:
            self.take(slot, json.loads(line))

    def take(self, slot: Slot, message: dict[str, Any]) -> None:
        slot.heard = time.monotonic()
        if "wrong" in message:
            raise Failed(f"WRONG BYTE: {message['wrong']}")
        if "regions" in message:
            slot.regions = message["regions"]
            for other in self.slots:
                other.stale = True
        slot.counts = message.get("counts", slot.counts)
        slot.over |= message.get("over", False)

    def ended(self, slot: Slot) -> None:
        assert slot.process
        status = slot.process.wait()
        self.forget(slot)
        if status != 0 or not slot.over:
            raise Failed(f"process {slot.number} ended by itself with status {status}: "
                         f"{self.words_of(slot).read_text(errors='replace')[-2000:]}")

    def tell(self, slot: Slot) -> None:
        """Where everybody's regions are. A message is whole or not written, being short."""
        assert slot.process and slot.process.stdin
        peers = [[other.name, other.regions] for other in self.slots]
        line = json.dumps({"peers": peers}).encode() + b"\n"
        assert len(line) <= select.PIPE_BUF, len(line)
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(slot.process.stdin.fileno(), line)
            slot.stale = False

    # What happens to them.

    def kill_one(self) -> None:
        slot = self.random.choice(self.slots[ELDERS:])
        assert slot.process
        self.kills += 1
        slot.process.kill()
        slot.process.wait()
        with contextlib.suppress(ValueError):
            self.read_last_words(slot)
        self.forget(slot)
        self.start(slot)
        for other in self.slots:
            other.stale = True

    def read_last_words(self, slot: Slot) -> None:
        """A wrong byte that was found just before the kill is not lost."""
        assert slot.process and slot.process.stdout
        lines = (slot.rest + (slot.process.stdout.read() or b"")).split(b"\n")
        for line in lines[:-1]:  # the last one may be cut
            self.take(slot, json.loads(line))

    def stop_one(self, now: float) -> None:
        slot = self.random.choice([s for s in self.slots if s.stopped_until == 0.0])
        assert slot.process
        self.stops += 1
        long = self.random.random() < 0.1
        slot.process.send_signal(signal.SIGSTOP)
        slot.stopped_until = now + (LONG_STOP_SECONDS if long else self.random.uniform(0.05, 1.0))

    def go_on(self, slot: Slot, now: float) -> None:
        assert slot.process
        slot.process.send_signal(signal.SIGCONT)
        slot.stopped_until, slot.heard = 0.0, now

    def happen(self, now: float) -> None:
        for slot in self.slots:
            if 0.0 < slot.stopped_until <= now:
                self.go_on(slot, now)
        if now < self.next_event:
            return
        self.next_event = now + self.random.uniform(0.2, 1.0)
        stopped = sum(slot.stopped_until > 0 for slot in self.slots)
        if stopped < 2 and self.random.random() < 0.6:
            self.stop_one(now)
        else:
            self.kill_one()

    # What is looked at.

    def watch(self, now: float) -> None:
        quarter = (now - self.begin) / self.seconds * 4
        for slot in self.slots:
            if slot.process is None or slot.stopped_until > 0:
                continue
            if now - slot.heard > HANG_SECONDS:
                raise Failed(f"HANG: process {slot.number} has said nothing for {HANG_SECONDS} s")
            try:
                used = usage_of(slot.process.pid)
            except (FileNotFoundError, KeyError, ProcessLookupError):
                continue  # it has just ended
            if used.descriptors > MOST_DESCRIPTORS or used.private_mib > MOST_PRIVATE_MIB:
                raise Failed(f"LEAK: process {slot.number} has {used.descriptors} descriptors and "
                             f"{used.private_mib:.0f} MiB of its own")
            if 1 <= quarter < 2:
                slot.middle.raise_to(used)
            elif 3 <= quarter:
                slot.late.raise_to(used)

    def compare_elders(self) -> None:
        if self.seconds / 4 < WARM_SECONDS:
            return  # what each may have at most has been watched all the time
        for slot in self.slots[:ELDERS]:
            more = slot.late.descriptors - slot.middle.descriptors
            mib = slot.late.private_mib - slot.middle.private_mib
            if more > GROWTH_DESCRIPTORS or mib > GROWTH_MIB:
                raise Failed(f"LEAK: process {slot.number} grew by {more} descriptors and "
                             f"{mib:.0f} MiB since the second quarter")

    def sums(self) -> dict[str, int]:
        return {key: value + sum(slot.counts.get(key, 0) for slot in self.slots)
                for key, value in self.totals.items()}

    def line(self, seconds: float) -> str:
        sums = self.sums()
        return (f"{seconds:.0f} s, {PROCESSES} processes, {sums['transfers']} transfers, "
                f"{sums['verified'] / 1e9:.2f} GB verified, {sums['failed']} failed, "
                f"{self.kills} kills, {self.stops} stops, {sums['withdrawn']} regions withdrawn, "
                f"{sums['excused']} reads of memory that had changed hands")

    def progress(self, now: float) -> None:
        if now >= self.next_progress:
            self.next_progress = now + PROGRESS_SECONDS
            print(f"soak: {self.line(now - self.begin)}", flush=True)

    # The whole.

    def turn(self, now: float) -> None:
        for key, _ in self.selector.select(0.05):
            self.read(key.data)
        for slot in self.slots:
            if slot.stale and slot.process is not None and slot.stopped_until == 0.0:
                self.tell(slot)
        self.watch(now)
        self.progress(now)

    def finish(self) -> None:
        """Everybody is told to end, and does."""
        now = time.monotonic()
        for slot in self.slots:
            assert slot.process and slot.process.stdin
            if slot.stopped_until > 0:
                self.go_on(slot, now)
            slot.process.stdin.close()
        while any(slot.process for slot in self.slots):
            late = [slot.number for slot in self.slots if slot.process]
            if time.monotonic() - now > END_SECONDS:
                raise Failed(f"HANG: processes {late} have not ended within {END_SECONDS} s")
            for key, _ in self.selector.select(0.05):
                self.read(key.data)

    def run(self) -> str:
        for slot in self.slots:
            self.start(slot)
        while (now := time.monotonic()) - self.begin < self.seconds:
            self.turn(now)
            self.happen(now)
        self.finish()
        self.compare_elders()
        if self.sums()["verified"] == 0:
            raise Failed("nothing was verified")
        return self.line(time.monotonic() - self.begin)


def free_ports() -> list[int]:
    """Ports below those that are taken for outgoing connections, which nobody listens on now."""
    found: list[int] = []
    for port in range(21000, 31000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == PROCESSES:
            return found
    raise Failed("no free ports")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="how long (default 600)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32),
                        help="of the order of events; the interleaving is the machine's")
    options = parser.parse_args()
    print(f"soak: seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="mooncake-soak-") as folder:
        soak = Soak(options.seconds, options.seed, pathlib.Path(folder))
        try:
            print(f"soak passed: {soak.run()}; 0 wrong bytes, no hang, no leak")
            return 0
        except Failed as failure:
            print(f"soak FAILED: {failure}; {soak.line(time.monotonic() - soak.begin)}")
            return 1
        finally:
            soak.kill_all()


if __name__ == "__main__":
    sys.exit(main())
