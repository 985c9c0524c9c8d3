"""One process of the soak: python worker.py SLOT NAME COUNT LIFE SEED. Talks to its parent in lines of JSON, which say where
its regions are, what it has done, and what was wrong.

A region is a header, which only its owner writes, and one lane for each process, which only that process writes: so a
writer knows what must lie there. It does not when the owner has taken the region out of service meanwhile, or has been
restarted; then the header says something else than what the parent had told. Whatever differs under the same header is a
wrong byte.
"""

import contextlib
import json
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import numpy
from mooncake.engine import TransferEngine

LANE = 512 << 10
HEADER = 4096
POISON = 0xDB
REPORT_SECONDS = 0.5
MOST_PIECES = 64
QUIET_SECONDS = 0.02  # how long memory that was taken back is watched


class Wrong(Exception):
    """A byte that is not what it must be."""


@dataclass
class Counts:
    transfers: int = 0
    failed: int = 0
    verified: int = 0  # bytes
    excused: int = 0
    withdrawn: int = 0


class Buffer:
    """Memory of this engine, registered: from a pool, or a numpy array of its own."""

    def __init__(self, engine: TransferEngine, size: int, managed: bool) -> None:
        self.engine, self.size, self.managed = engine, size, managed
        self.own = numpy.zeros(0 if managed else size, dtype=numpy.uint8)
        self.address = engine.allocate_managed_buffer(size) if managed else self.own.ctypes.data
        assert self.address
        if managed:
            pointer = numpy.ctypeslib.ctypes.c_uint8 * size
            self.bytes = numpy.frombuffer(pointer.from_address(self.address), dtype=numpy.uint8)
        else:
            self.bytes = self.own
            assert engine.register_memory(self.address, size) == 0


class Region(Buffer):
    """What others write to."""

    def __init__(self, engine: TransferEngine, lanes: int, managed: bool, tag: tuple[int, int]) -> None:
        super().__init__(engine, HEADER + lanes * LANE, managed)
        self.mark(tag)

    def mark(self, tag: tuple[int, int]) -> None:
        self.tag = tag
        self.bytes[:16] = numpy.frombuffer(header_of(tag), dtype=numpy.uint8)


def header_of(tag: tuple[int, int]) -> bytes:
    return tag[0].to_bytes(8, "little") + tag[1].to_bytes(8, "little")


@dataclass
class Lane:
    """Ours, in the region of another."""

    name: str  # of its engine
    region: int  # address
    tag: tuple[int, int]
    address: int
    content: numpy.ndarray = field(default_factory=lambda: numpy.zeros(LANE, dtype=numpy.uint8))
    known: numpy.ndarray = field(default_factory=lambda: numpy.zeros(LANE, dtype=bool))


class Worker:
    def __init__(self, slot: int, name: str, count: int, life: int, seed: int) -> None:
        self.slot, self.count, self.life = slot, count, life
        self.random = numpy.random.default_rng(seed)
        self.counts = Counts()
        self.engine = TransferEngine()
        assert self.engine.initialize(name, "P2PHANDSHAKE", "tcp", "") == 0, "no engine"
        self.generation = 0
        self.regions = [self.new_region(managed) for managed in (True, False, True)]
        self.source = Buffer(self.engine, LANE, bool(self.random.integers(2)))
        self.sink = Buffer(self.engine, LANE, bool(self.random.integers(2)))
        self.lanes: dict[tuple[int, int], Lane] = {}  # by peer and its region's number
        self.inbox: list[dict[str, Any]] = []
        self.lock = threading.Lock()  # guards inbox
        self.over = threading.Event()
        self.quarantined: list[Region] = []

    # Talking to the parent.

    def say(self, **message: Any) -> None:
        print(json.dumps({"slot": self.slot, "life": self.life, **message}), flush=True)

    def announce(self) -> None:
        self.say(regions=[[region.address, list(region.tag)] for region in self.regions])

    def listen(self) -> None:
        for line in sys.stdin:
            with self.lock:
                self.inbox.append(json.loads(line))
        self.over.set()  # the parent has closed it, or has died

    def take_news(self) -> None:
        with self.lock:
            news, self.inbox = self.inbox, []
        for message in news[-1:]:  # each one tells everything
            for peer, (name, regions) in enumerate(message["peers"]):
                for number, (address, tag) in enumerate(regions):
                    known = self.lanes.get((peer, number))
                    if known is None or (known.region, known.tag) != (address, tuple(tag)):
                        place = address + HEADER + self.slot * LANE
                        self.lanes[peer, number] = Lane(name, address, tuple(tag), place)

    # Regions of our own.

    def new_region(self, managed: bool) -> Region:
        self.generation += 1
        return Region(self.engine, self.count, managed, (self.life, self.generation))

    def withdraw_one(self) -> None:
        """Takes a region back while others may be writing; no byte may change from then on."""
        number = int(self.random.integers(len(self.regions)))
        region = self.regions[number]
        self.counts.withdrawn += 1
        if region.managed:
            if self.engine.free_managed_buffer(region.address, region.size) != 0:
                self.quarantined.append(region)  # somebody stands still inside
            self.regions[number] = self.new_region(True)
        elif self.engine.unregister_memory(region.address) != 0:
            self.quarantined.append(region)
            self.regions[number] = self.new_region(False)
        else:
            fill = int(self.random.integers(256))
            region.bytes[:] = fill
            self.over.wait(QUIET_SECONDS)
            if not (region.bytes == fill).all():
                raise Wrong(f"a byte landed in memory that process {self.slot} had taken back")
            self.generation += 1
            region.mark((self.life, self.generation))
            assert self.engine.register_memory(region.address, region.size) == 0
        self.announce()

    # Lanes of ours, in regions of others.

    def move(self, lane: Lane, write: bool, begin: int, size: int) -> bool:
        """Between `lane` and the begin of the source or the sink, in pieces and in one of the
        ways there are."""
        local = (self.source if write else self.sink).address
        pieces = int(self.random.integers(1, min(size, MOST_PIECES) + 1))
        cuts = numpy.unique(numpy.concatenate(
            ([0, size], self.random.integers(0, size, pieces - 1)))).astype(numpy.int64)
        offsets, lengths = cuts[:-1], numpy.diff(cuts)
        lists = local + offsets, lane.address + begin + offsets, lengths
        engine, way = self.engine, int(self.random.integers(3))
        self.counts.transfers += 1
        if way == 0 and len(lengths) == 1:
            call = engine.transfer_sync_write if write else engine.transfer_sync_read
            done = call(lane.name, local, lane.address + begin, size) == 0
        elif way == 1:
            submit = engine.batch_transfer_async_write if write else engine.batch_transfer_async_read
            batch = submit(lane.name, *lists)
            done = batch != 0 and engine.get_batch_transfer_status([batch]) == 0
        else:
            call = engine.batch_transfer_sync_write if write else engine.batch_transfer_sync_read
            done = call(lane.name, *lists) == 0
        self.counts.failed += not done
        return done

    def same_header(self, lane: Lane) -> bool:
        self.counts.transfers += 1
        if self.engine.transfer_sync_read(lane.name, self.sink.address, lane.region, 16) != 0:
            self.counts.failed += 1
            return False
        return self.sink.bytes[:16].tobytes() == header_of(lane.tag)

    def check(self, lane: Lane, begin: int, allowed: numpy.ndarray, what: str) -> None:
        """`allowed`: byte by byte, whether what was read is right."""
        if allowed.all():
            self.counts.verified += len(allowed)
        elif self.same_header(lane):
            at = int(numpy.argmin(allowed))
            raise Wrong(f"process {self.slot}, {what}: byte {begin + at} of its lane at {lane.name}, "
                        f"region {lane.region:#x} {lane.tag}, {int((~allowed).sum())} of "
                        f"{len(allowed)} bytes differ")
        else:
            self.counts.excused += 1
            lane.known[:] = False

    def exchange(self, lane: Lane) -> None:
        """Writes a part of the lane and reads back some of it."""
        size = int(2 ** self.random.uniform(0, numpy.log2(LANE)))
        begin = int(self.random.integers(0, LANE - size + 1))
        part = slice(begin, begin + size)
        data = numpy.frombuffer(self.random.bytes(size), dtype=numpy.uint8)
        self.source.bytes[:size] = data
        done = self.move(lane, True, begin, size)
        # The call has returned, so what is put here now may never be seen there.
        self.source.bytes[:size] = POISON
        before = lane.content[part].copy(), lane.known[part].copy()
        lane.content[part], lane.known[part] = data, done
        self.sink.bytes[:size] = POISON
        if not self.move(lane, False, begin, size):
            return
        got = self.sink.bytes[:size]
        if done:
            self.check(lane, begin, got == data, "after a write")
        elif before[1].all():
            # A write that failed may leave a part of its bytes, or zeros.
            self.check(lane, begin, (got == data) | (got == before[0]) | (got == 0),
                       "after a write that failed")

    def look_again(self, lane: Lane) -> None:
        """What was written long ago is still there."""
        if self.move(lane, False, 0, LANE):
            self.check(lane, 0, (self.sink.bytes == lane.content) | ~lane.known, "long after")

    def step(self) -> None:
        self.take_news()
        dice = self.random.random()
        if dice < 0.02:
            self.withdraw_one()
        if not self.lanes:
            self.over.wait(0.05)  # until the parent has told of somebody
            return
        lane = list(self.lanes.values())[int(self.random.integers(len(self.lanes)))]
        if dice > 0.95:
            self.look_again(lane)
        else:
            self.exchange(lane)

    def run(self) -> int:
        threading.Thread(target=self.listen, daemon=True).start()
        self.announce()
        reported = 0.0
        try:
            while not self.over.is_set():
                self.step()
                if time.monotonic() - reported > REPORT_SECONDS:
                    reported = time.monotonic()
                    self.say(counts=vars(self.counts))
        except Wrong as error:
            self.say(wrong=str(error))
            return 1
        self.say(counts=vars(self.counts), over=True)
        return 0


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        name_of_ours = sys.argv[2]
        sys.exit(Worker(int(sys.argv[1]), name_of_ours, *map(int, sys.argv[3:6])).run())
