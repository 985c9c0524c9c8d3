"""One process that loads a store: python load_worker.py ROLE JSON. Talks to its parent in lines of JSON: what was
acknowledged, how much was read, and what was wrong. Ends with its standard input.

A value is one word, repeated, that names its key and version, and its size follows from the version: so a mixture of two
versions, a foreign byte and a cut are noticed by whoever reads.
"""

import json
import random
import sys
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

import numpy
from mooncake.store import MooncakeDistributedStore, ReplicateConfig

TIMEOUT = 2.0  # seconds; of every call of these stores
SLACK = 1.5  # a call that runs longer than both did not keep its deadline
TICK = 0.02
VERSIONS_OF_A_LIFE = 1_000_000


def value_of(key: str, version: int, size: int) -> bytes:
    word = zlib.crc32(key.encode()) << 32 | version
    return numpy.full((size + 8 * (version % 97)) // 8, word, dtype="<u8").tobytes()


def version_of(key: str, value: bytes, size: int) -> int | None:
    """None when these are not the bytes of one version of this key."""
    if len(value) < 8 or len(value) % 8 != 0:
        return None
    words = numpy.frombuffer(value, dtype="<u8")
    version = int(words[0]) & 0xFFFFFFFF
    whole = (words == words[0]).all() and len(value) == (size + 8 * (version % 97)) // 8 * 8
    return version if whole and int(words[0]) >> 32 == zlib.crc32(key.encode()) else None


def open_store(master: str, name: str, segment: int) -> MooncakeDistributedStore | None:
    store = MooncakeDistributedStore()
    code = store.setup({"local_hostname": name, "metadata_server": "P2PHANDSHAKE", "global_segment_size": segment,
                        "master_server_addr": master, "timeout": f"{TIMEOUT * 1000:.0f}ms"})
    return store if code == 0 else None


class Running:
    """Times calls by how long this process could run: who stops it, or a machine that stands still, is not counted."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.ticks, self.stalled = 0, 0.0  # seconds in which this process did not run
        threading.Thread(target=self._tick, daemon=True).start()

    def _tick(self) -> None:
        last = time.monotonic()
        while not self.over.wait(TICK):
            now = time.monotonic()
            if now - last > 5 * TICK:
                self.stalled += now - last - TICK
            last = now
            self.ticks += 1

    def timed(self, call: Callable[[], Any]) -> tuple[Any, float]:
        begun, stalled = time.monotonic(), self.stalled
        answer = call()
        seconds, after = time.monotonic() - begun, self.ticks + 2
        while seconds > 0.5 and self.ticks < after and not self.over.wait(TICK):
            pass  # a stall is known with the next tick
        return answer, seconds - (self.stalled - stalled)


class Worker:
    """`life` and `seed` are its own; `keys` what it writes or reads."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.__dict__.update(given)
        self.random = random.Random(self.seed)
        self.quiet, self.over = threading.Event(), threading.Event()
        self.running = Running()
        self.store: Any = None
        while self.store is None:  # while there is no Master; the parent's patience is the limit
            self.store = open_store(self.master, self.name, self.segment)
        self.say(ready=self.store.get_hostname())

    def say(self, **message: Any) -> None:
        print(json.dumps(message), flush=True)

    def listen(self) -> None:
        for line in sys.stdin:
            if line.strip() == "pause":
                self.quiet.set()
            elif line.strip() == "go on":
                self.quiet.clear()
        self.over.set()

    def timed(self, what: str, *arguments: Any) -> Any:
        answer, seconds = self.running.timed(lambda: getattr(self.store, what)(*arguments))
        if seconds > TIMEOUT + SLACK:
            self.say(late=what, seconds=seconds)
        return answer

    def own(self) -> None:
        self.over.wait()

    def until_over(self, step: Any) -> None:
        told = False
        while not self.over.is_set():
            if not self.quiet.is_set():
                told = False
                step()
                continue
            if not told:
                self.say(paused=True)
                told = True
            self.over.wait(0.005)

    def write(self) -> None:
        versions = dict.fromkeys(self.keys, self.life * VERSIONS_OF_A_LIFE)
        config = ReplicateConfig()

        def step() -> None:
            key = self.random.choice(self.keys)
            versions[key] += 1
            config.preferred_segments = [self.random.choice(self.owners)]
            value = value_of(key, versions[key], self.size)
            code = self.timed("upsert", key, value, config)
            if code != 0:
                self.say(failed=code)
                return
            replicas = self.timed("get_replica_desc", key)
            places = [one.get_memory_descriptor().buffer_descriptor.transport_endpoint for one in replicas]
            self.say(acknowledged=key, version=versions[key], places=places)

        self.until_over(step)

    def read(self) -> None:
        newest = dict.fromkeys(self.keys, 0)
        counts = {"read": 0, "missed": 0}

        def step() -> None:
            key = self.random.choice(self.keys)
            if self.random.random() < 0.5:
                value = self.timed("get", key)
            else:
                value = bytes(self.timed("get_buffer", key) or b"")
            counts["read" if value else "missed"] += 1
            version = version_of(key, value, self.size) if value else newest[key]
            if version is None or version < newest[key]:
                self.say(wrong=key, bytes=len(value), version=version, newest=newest[key], begin=value[:16].hex())
            newest[key] = max(newest[key], version or 0)
            if sum(counts.values()) >= 10:
                self.say(**counts)
                counts.update(read=0, missed=0)

        self.until_over(step)


if __name__ == "__main__":
    worker = Worker(json.loads(sys.argv[2]))
    threading.Thread(target=worker.listen, daemon=True).start()
    {"own": worker.own, "write": worker.write, "read": worker.read}[sys.argv[1]]()
    worker.store.close()
