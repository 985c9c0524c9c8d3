"""For the tests of the Python store: a store that is set up, memory with addresses, and a thread that
can only count while it gets the GIL."""

import ctypes
import mmap
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy
from mooncake.store import MooncakeDistributedStore

INVALID, MISSING, LEASED, NO_ROOM, NOT_REGISTERED = -600, -704, -706, -200, -800
MEBIBYTE = 1 << 20


def config(master: str, **others: Any) -> dict[str, Any]:
    return {"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE",
            "global_segment_size": "64MB", "master_server_addr": master, **others}


def opened(master: str, kind: type = MooncakeDistributedStore, **others: Any) -> Any:
    store = kind()
    assert store.setup(config(master, **others)) == 0
    return store


class Counter:
    """Counts in a thread of its own, which it can only while it gets the GIL."""

    def __enter__(self) -> "Counter":
        self.count = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def _run(self) -> None:
        while not self._end.wait(0.001):
            self.count += 1

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.monotonic()
    return call(), time.monotonic() - begin


def together(threads: int, work: Callable[[int], None]) -> None:
    """Runs work(0) ... work(threads - 1) side by side; raises what one of them raised."""
    failures: list[BaseException] = []
    started = threading.Barrier(threads)

    def run(number: int) -> None:
        started.wait()
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    running = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if failures:
        raise failures[0]


class Memory:
    """Registered memory: a numpy array of bytes, its address and its size."""

    def __init__(self, store: MooncakeDistributedStore, size: int) -> None:
        self.store = store
        self.bytes = numpy.zeros(size, dtype=numpy.uint8)
        self.address = self.bytes.ctypes.data
        self.size = size
        assert store.register_buffer(self.address, size) == 0

    def fill(self, seed: int) -> bytes:
        self.bytes[:] = numpy.random.default_rng(seed).integers(0, 256, self.size, numpy.uint8)
        return self.bytes.tobytes()

    def end(self) -> None:
        assert self.store.unregister_buffer(self.address) == 0


class Pages:
    """Anonymous memory that begins with a page."""

    def __init__(self, size: int) -> None:
        self.map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))


def random_bytes(size: int) -> bytes:
    return os.urandom(size)
