"""Proves whose the bytes of managed buffers are: they are not unregistered by their address, are closed when they are freed,
and are nobody else's while a peer, stopped in the middle, may still write there."""

import os
import subprocess
import sys
import time

import pytest
from child_process import ChildProcess
from mooncake.engine import TransferEngine
from test_engine_python import INVALID, KIBIBYTE, MEBIBYTE, Memory, name_of, opened

paths = pytest.mark.parametrize("forced", ["0", "1"], ids=["auto", "tcp"])


@pytest.fixture
def pair() -> tuple[TransferEngine, TransferEngine]:
    return opened(), opened()


def test_managed_memory_is_not_unregistered(
        pair: tuple[TransferEngine, TransferEngine], capfd: pytest.CaptureFixture[str]) -> None:
    one, two = pair
    mine, theirs = [[engine.allocate_managed_buffer(MEBIBYTE) for _ in range(2)] for engine in pair]
    for address in (theirs[0], theirs[1], theirs[0] + 4096):
        assert two.unregister_memory(address) == INVALID
        said = capfd.readouterr().err
        assert f"{address:#x}" in said and "free_managed_buffer" in said, said
        assert two.batch_unregister_memory([address]) == INVALID
    assert one.write_bytes_to_buffer(mine[0], b"hello" * 2000, 10_000) == 0
    for buffer in theirs:
        assert one.transfer_sync_write(name_of(two), mine[0], buffer, 10_000) == 0
        assert two.read_bytes_from_buffer(buffer, 10_000) == b"hello" * 2000
    assert two.register_memory(theirs[0], 100) == 0  # his own, which he may take back
    assert two.unregister_memory(theirs[0]) == 0
    assert one.transfer_sync_write(name_of(two), mine[0], theirs[0], MEBIBYTE) == 0


@paths
def test_a_freed_buffer_is_closed_and_its_next_owner_is_reached(
        forced: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever has been learned of buffers that were there before, larger and smaller ones."""
    monkeypatch.setenv("MC_FORCE_TCP", forced)
    one, two = opened(), opened()
    mine = Memory(one, MEBIBYTE)
    first = None
    for size in (MEBIBYTE, 8 * KIBIBYTE, 64 * KIBIBYTE, 16 * KIBIBYTE, MEBIBYTE):
        theirs = [two.allocate_managed_buffer(size) for _ in range(2)]
        first = first or theirs[0]
        assert theirs[0] == first
        for buffer in theirs:
            assert one.transfer_sync_write(name_of(two), mine.address, buffer, size) == 0
            assert two.read_bytes_from_buffer(buffer, size) == mine.bytes[:size].tobytes()
        for buffer in theirs:
            assert two.free_managed_buffer(buffer, size) == 0
            assert one.transfer_sync_write(name_of(two), mine.address, buffer, size) == -1


@paths
def test_what_was_learned_of_a_larger_buffer_hides_none_that_came_after_it(
        forced: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MC_FORCE_TCP", forced)
    one, two = opened(), opened()
    mine = Memory(one, MEBIBYTE)

    def write(buffer: int, size: int) -> int:  # on the engine's thread
        batch = one.transfer_submit_write(name_of(two), mine.address, buffer, size)
        return one.get_batch_transfer_status([batch])

    large = [two.allocate_managed_buffer(MEBIBYTE) for _ in range(2)]
    assert [write(buffer, MEBIBYTE) for buffer in large] == [0, 0]
    for buffer in large:
        assert two.free_managed_buffer(buffer, MEBIBYTE) == 0
    small = [two.allocate_managed_buffer(MEBIBYTE // 2) for _ in range(4)]
    assert small[3] == large[1] + MEBIBYTE // 2
    for buffer in (small[0], small[3]):
        assert write(buffer, MEBIBYTE // 2) == 0
        assert two.read_bytes_from_buffer(buffer, 100) == mine.bytes[:100].tobytes()


WRITES_FOR_LONG = """
import sys
from mooncake.engine import TransferEngine
name, there, size, times = sys.argv[1], *map(int, sys.argv[2:])
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
mine = engine.allocate_managed_buffer(size)
assert engine.write_bytes_to_buffer(mine, b"w" * size, size) == 0
assert engine.transfer_sync_write(name, mine, there, size - 1) == 0
print("ready", flush=True)
print(engine.batch_transfer_sync_write(name, [mine] * times, [there] * times, [size] * times),
      flush=True)
"""


class Writer(ChildProcess):
    """Writes one buffer again and again, in a single call."""

    def __init__(self, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITES_FOR_LONG, *map(str, arguments)], stdout=subprocess.PIPE,
            text=True)
        assert self.process.stdout.readline() == "ready\n"


@pytest.mark.parametrize("forced, times", [("0", 4000), ("1", 100)], ids=["auto", "tcp"])
def test_the_next_owner_of_a_freed_buffer_is_not_written_to(
        forced: str, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffer is freed, and one of its size allocated, while a peer stands still in the middle
    of a call that writes: that call ends with an error, and not in the new buffer."""
    monkeypatch.setenv("MC_FORCE_TCP", forced)
    engine, size = opened(), 16 * MEBIBYTE
    for _ in range(2):
        freed = engine.allocate_managed_buffer(size)
        last = freed + size - 1  # which only the long call writes
        assert engine.write_bytes_to_buffer(last, b"-", 1) == 0
        writer = Writer(name_of(engine), freed, size, times)
        try:
            until = time.monotonic() + 20
            while engine.read_bytes_from_buffer(last, 1) != b"w":
                assert time.monotonic() < until
                os.sched_yield()
            with writer.stopped():
                assert engine.free_managed_buffer(freed, size) == 0
                mine = engine.allocate_managed_buffer(size)
                assert engine.write_bytes_to_buffer(mine, b"x" * size, size) == 0
            assert writer.process.stdout.readline() == "-1\n"
            assert engine.read_bytes_from_buffer(mine, size) == b"x" * size
        finally:
            writer.kill()
            writer.process.stdout.close()
        assert engine.free_managed_buffer(mine, size) == 0
