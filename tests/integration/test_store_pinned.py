"""Proves that a value which one process has pinned where it lies, in the segment of another one, stays
as it is whatever becomes of the object and of either process, that its memory is used again when it
is let go of, and that nobody else waits for the reader."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import pytest
from conftest import MasterProcess
from store_rig import MEBIBYTE, opened, random_bytes

# Each line that it reads is a call; it answers with one line.
READER = """
import hashlib, sys
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
assert store.setup({"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE",
                    "global_segment_size": int(sys.argv[2]),
                    "master_server_addr": sys.argv[1]}) == 0
held = {}
print("ready", flush=True)
for line in sys.stdin:
    call, key = line.split()
    if call == "put":
        answer = store.put(key, sys.argv[3].encode() * (1 << 20))
    elif call == "pin":
        held[key] = store.get_pinned(key)
        answer = "none" if held[key] is None else "pinned"
    elif call == "digest":
        answer = hashlib.sha256(held[key]).hexdigest()
    elif call == "release":
        answer = held.pop(key).release()
    elif call == "close":
        answer = store.close()
    print(answer, flush=True)
"""
SEGMENT = 16 * MEBIBYTE
# Wherever it is placed, the middle of the segment is in it; below the mark at which eviction begins.
LARGE = 14 * MEBIBYTE


class Reader:
    def __init__(self, master: str, segment: int = 0, fill: str = "r") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", READER, master, str(segment), fill], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == "ready\n"

    def ask(self, call: str, key: str) -> str:
        self.process.stdin.write(f"{call} {key}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@contextmanager
def reading(master: str, segment: int = 0) -> Iterator[Reader]:
    reader = Reader(master, segment)
    try:
        yield reader
    finally:
        reader.end()


@pytest.fixture
def owner(live_master: MasterProcess) -> Iterator[Any]:
    store = opened(live_master.address, global_segment_size=SEGMENT)
    yield store
    assert store.close() == 0


def digest(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()


def put_in_the_middle(store: Any, key: str, value: bytes) -> None:
    assert store.put("before", bytes(4 * MEBIBYTE)) == 0
    assert store.put(key, value) == 0


def fill(store: Any, name: str, count: int = 40) -> None:
    """More than the segment holds; each put has to find room."""
    for number in range(count):
        assert store.put(f"{name}/{number}", random_bytes(MEBIBYTE)) == 0, number


def puts_a_large_value(store: Any, key: str, value: bytes, limit: float = 10) -> bool:
    """Whether a value that needs most of the segment finds room in time."""
    end = time.monotonic() + limit
    while store.upsert(key, value) != 0:
        if time.monotonic() > end:
            return False
    return True


@pytest.mark.parametrize("change", ["upsert", "remove"])
def test_what_is_pinned_stays_as_it_was(
    live_master: MasterProcess, owner: Any, change: str
) -> None:
    old, new = random_bytes(MEBIBYTE), random_bytes(MEBIBYTE)
    put_in_the_middle(owner, "k", old)
    with reading(live_master.address) as reader:
        assert reader.ask("pin", "k") == "pinned"
        assert reader.ask("digest", "k") == digest(old)
        if change == "upsert":
            assert owner.upsert("k", new) == 0
            assert owner.get("k") == new
        else:
            assert owner.remove("k", force=True) == 0
            assert owner.get("k") == b""
        fill(owner, change)
        assert reader.ask("digest", "k") == digest(old)
        large = random_bytes(LARGE)
        assert owner.remove_all(force=True) > 0
        assert owner.put("large", large) != 0, "the pinned part is in its way"
        assert reader.ask("digest", "k") == digest(old)
        assert reader.ask("release", "k") == "None"
        assert puts_a_large_value(owner, "large", large)
        assert owner.get("large") == large


def test_puts_find_the_room_that_pins_leave(live_master: MasterProcess, owner: Any) -> None:
    keys = [f"k{number}" for number in range(10)]
    for key in keys:
        assert owner.put(key, random_bytes(MEBIBYTE)) == 0
    with reading(live_master.address) as reader:
        for key in keys:
            assert reader.ask("pin", key) == "pinned"
        assert owner.remove_all(force=True) == len(keys)
        for number in range(4):
            assert owner.put(f"free{number}", random_bytes(MEBIBYTE)) == 0, number
        # Then nothing is left but what is pinned.
        [outcome] = owner.batch_put_outcomes(["large"], [bytes(10 * MEBIBYTE)])
        assert outcome["code"] != 0
        assert "needs 10 MiB" in outcome["detail"]
        assert "let go of what pin() and get_pinned() gave" in outcome["detail"]


def test_a_killed_reader_pins_nothing(live_master: MasterProcess, owner: Any) -> None:
    put_in_the_middle(owner, "k", random_bytes(MEBIBYTE))
    large = random_bytes(LARGE)
    with reading(live_master.address) as reader:
        assert reader.ask("pin", "k") == "pinned"
        assert owner.remove_all(force=True) == 2
        assert owner.put("large", large) != 0
        reader.process.kill()
        assert puts_a_large_value(owner, "large", large)


def test_a_reader_that_stands_still_holds_up_nobody(
    live_master: MasterProcess, owner: Any
) -> None:
    value = random_bytes(MEBIBYTE)
    assert owner.put("k", value) == 0
    with reading(live_master.address) as reader:
        assert reader.ask("pin", "k") == "pinned"
        os.kill(reader.process.pid, signal.SIGSTOP)
        assert owner.remove("k", force=True) == 0
        slowest = 0.0
        for number in range(40):
            begun = time.monotonic()
            assert owner.put(f"other/{number}", random_bytes(MEBIBYTE)) == 0, number
            slowest = max(slowest, time.monotonic() - begun)
        assert slowest < 2, "the deadline of a put is 5 s"
        os.kill(reader.process.pid, signal.SIGCONT)
        assert reader.ask("digest", "k") == digest(value)


def test_bytes_outlive_their_owner(live_master: MasterProcess) -> None:
    reader = opened(live_master.address, global_segment_size=0)
    with reading(live_master.address, SEGMENT) as owner:
        assert owner.ask("put", "k") == "0"
        pinned = reader.get_pinned("k")
        view = numpy.frombuffer(pinned, numpy.uint8)
        assert (view == ord("r")).all()
        owner.process.kill()
        owner.process.wait()
        assert (view == ord("r")).all()
    reader.close()
    assert (view == ord("r")).all()


def test_a_pin_outlives_the_store(live_master: MasterProcess, owner: Any) -> None:
    value = random_bytes(MEBIBYTE)
    put_in_the_middle(owner, "k", value)
    with reading(live_master.address) as reader:
        assert reader.ask("pin", "k") == "pinned"
        assert reader.ask("close", "-") == "0"
        assert owner.remove("k", force=True) == 0
        fill(owner, "other")
        assert reader.ask("digest", "k") == digest(value)
        assert reader.ask("release", "k") == "None"
        assert puts_a_large_value(owner, "large", random_bytes(LARGE))


def test_a_pinned_value_is_a_buffer_that_can_only_be_read(store: Any) -> None:
    value = random_bytes(10_000)
    assert store.put("k", value) == 0
    assert store.get_pinned("missing") is None
    with store.get_pinned("k") as pinned:
        assert len(pinned) == pinned.size() == len(value)
        assert pinned.ptr() != 0
        assert bytes(pinned) == value
        array = numpy.frombuffer(pinned, numpy.uint8)
        assert array.ctypes.data == pinned.ptr()
        assert not array.flags.writeable
        with pytest.raises(TypeError):
            memoryview(pinned)[0] = 0
    assert array.tobytes() == value, "a view keeps it pinned"
    with pytest.raises(BufferError):
        memoryview(pinned)
    assert len(pinned) == len(value)
    del array
    assert len(pinned) == pinned.ptr() == 0
    pinned.release()


def test_own_values_stay_after_close(live_master: MasterProcess) -> None:
    store = opened(live_master.address)
    value = random_bytes(MEBIBYTE)
    assert store.put("k", value) == 0
    pinned = store.get_pinned("k")
    assert store.close() == 0
    assert bytes(pinned) == value
    assert store.get_pinned("k") is None
