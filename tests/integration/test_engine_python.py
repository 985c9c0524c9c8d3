"""Proves the Python Transfer Engine's calls and codes between engines of this process and of others:
cases C1 (many blocks on one host), C6 (a namesake returns), C8 (IPv6), C25 (very many pieces), C31
(done is done), and that its lists may be arrays."""

import array
import ctypes
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
from conftest import free_port
from engine_peer import PeerProcess
from mooncake import engine as module
from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode

KIBIBYTE, MEBIBYTE = 1 << 10, 1 << 20
INVALID, NOT_REGISTERED = -1, -3


def opened(host: str = "127.0.0.1", metadata: str = "P2PHANDSHAKE",
           protocol: str = "tcp") -> TransferEngine:
    engine = TransferEngine()
    assert engine.initialize(host, metadata, protocol, "") == 0
    return engine


def name_of(engine: TransferEngine, host: str = "127.0.0.1") -> str:
    return f"{host}:{engine.get_rpc_port()}"


class Memory:
    """Registered memory: a numpy array, and the addresses in it."""

    def __init__(self, engine: TransferEngine, size: int, fill: int | None = None) -> None:
        self.bytes = numpy.zeros(size, dtype=numpy.uint8)
        if fill is None:
            self.bytes[:] = numpy.frombuffer(os.urandom(size), dtype=numpy.uint8)
        else:
            self.bytes[:] = fill
        self.address = self.bytes.ctypes.data
        assert engine.register_memory(self.address, size) == 0

    def pieces(self, count: int, size: int) -> list[int]:
        return [self.address + i * size for i in range(count)]


@pytest.fixture
def pair() -> Iterator[tuple[TransferEngine, TransferEngine]]:
    yield opened(), opened()


def test_the_names_of_the_module() -> None:
    assert TransferEngine.TransferOpcode is TransferOpcode
    assert (TransferOpcode.Read, TransferOpcode.Write) == (0, 1)
    assert TransferOpcode.READ is TransferOpcode.Read is module.Read
    assert TransferOpcode.WRITE is TransferOpcode.Write is module.Write
    for support in ("CUDA", "EFA", "HIP", "INTRA_NVLINK", "MNNVL", "MUSA"):
        assert getattr(module, f"SUPPORT_{support}") is False


def test_an_engine_that_is_not_initialized_gives_minus_one() -> None:
    engine = TransferEngine()
    assert engine.get_rpc_port() == -1
    assert engine.get_engine() is None and engine.get_engine_ptr() == 0
    assert engine.register_memory(4096, 4096) == -1
    assert engine.unregister_memory(4096) == -1
    assert engine.batch_register_memory([4096], [4096]) == -1
    assert engine.batch_unregister_memory([4096]) == -1
    assert engine.allocate_managed_buffer(4096) == 0
    assert engine.free_managed_buffer(4096, 4096) == -1
    assert engine.transfer_sync_write("127.0.0.1:1", 0, 0, 0) == -1
    assert engine.batch_transfer_sync_read("127.0.0.1:1", [], [], []) == -1
    assert engine.batch_transfer_async_write("127.0.0.1:1", [], [], []) == 0
    assert engine.transfer_check_status(1) == -1 and engine.get_batch_transfer_status([1]) == -1
    assert engine.get_first_buffer_address("127.0.0.1:1") == 0
    assert engine.send_probe("127.0.0.1:1") == -1 and engine.get_notifies() == []
    assert engine.send_notify("127.0.0.1:1", "a", "b") == -1
    assert engine.warmup_efa_segment("127.0.0.1:1") == 0


def test_bytes_move_both_ways(pair: tuple[TransferEngine, TransferEngine]) -> None:
    one, two = pair
    mine, theirs = Memory(one, MEBIBYTE), Memory(two, MEBIBYTE)
    assert one.transfer_sync_write(name_of(two), mine.address, theirs.address, 1000) == 0
    assert (theirs.bytes[:1000] == mine.bytes[:1000]).all()
    assert one.transfer_sync_read(name_of(two), mine.address + 5000, theirs.address + 7, 5000) == 0
    assert (mine.bytes[5000:10000] == theirs.bytes[7:5007]).all()
    assert one.transfer_sync_write(name_of(one), mine.address, mine.address + 50_000, 999) == 0
    assert (mine.bytes[50_000:50_999] == mine.bytes[:999]).all()
    assert one.transfer_sync_write(
        target_hostname=name_of(two), buffer=mine.address, peer_buffer_address=theirs.address,
        length=0, transport_hint="rdma") == 0


def test_batches_are_lists_or_arrays(pair: tuple[TransferEngine, TransferEngine]) -> None:
    one, two = pair
    mine, theirs = Memory(one, 64 * KIBIBYTE), Memory(two, 64 * KIBIBYTE, 0)
    sources, targets = mine.pieces(16, 4096), theirs.pieces(16, 4096)
    lengths = [4096] * 16
    every_second = numpy.zeros(32, dtype=numpy.int64)
    every_second[::2] = sources

    class OnlyDlpack:
        def __init__(self, values: list[int]) -> None:
            self.array = numpy.array(values, dtype=numpy.int64)

        def __dlpack__(self, **arguments: Any) -> Any:
            return self.array.__dlpack__(**arguments)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.array.__dlpack_device__()

    for make in (list, tuple, lambda v: numpy.array(v, dtype=numpy.uint64),
                 lambda v: numpy.array(v, dtype=numpy.int64), lambda v: array.array("Q", v),
                 lambda v: array.array("q", v), lambda v: [numpy.int64(x) for x in v],
                 lambda v: numpy.array(v, dtype=">u8"), lambda v: numpy.array(v[::-1], ">i8")[::-1],
                 lambda v: (ctypes.c_int64 * len(v))(*v), lambda v: (ctypes.c_uint64 * len(v))(*v),
                 lambda v: memoryview(array.array("L", v)), OnlyDlpack,
                 lambda v: every_second[::2] if v is sources else v):
        theirs.bytes[:] = 0
        assert one.batch_transfer_sync_write(
            name_of(two), make(sources), make(targets), make(lengths)) == 0
        assert (theirs.bytes == mine.bytes).all()
    assert one.batch_transfer_sync_read(name_of(two), sources, targets, range(16)) == 0
    assert one.batch_transfer_sync_read(name_of(two), [], numpy.empty(0, numpy.int64), ()) == 0


def test_wrong_lists(pair: tuple[TransferEngine, TransferEngine],
                     capfd: pytest.CaptureFixture[str]) -> None:
    one, two = pair
    assert one.batch_transfer_sync_write(name_of(two), [1, 2], [1, 2], [1]) == -1
    assert one.batch_register_memory([4096], [1, 2]) == -1
    said = capfd.readouterr().err
    assert "2 buffers, 2 peer addresses and 1 lengths" in said and said.count("\n") == 2
    with pytest.raises(TypeError):
        one.transfer_sync_write(name_of(two), -1, 0, 0)
    for boolean in (True, numpy.bool_(True)):
        with pytest.raises(TypeError):
            one.transfer_sync_write(name_of(two), boolean, 0, 0)
        with pytest.raises(TypeError):
            one.register_memory(boolean, 4096)
    with pytest.raises(ValueError, match="carrier"):
        one.transfer_sync_write(name_of(two), 0, 0, 0, "carrier")


def test_positional_only_as_published() -> None:
    engine = TransferEngine()
    for call, arguments in [
            (engine.initialize, {"arg0": "", "arg1": "", "arg2": "", "arg3": ""}),
            (engine.unregister_memory, {"arg0": 1}), (engine.batch_unregister_memory, {"arg0": []}),
            (engine.allocate_managed_buffer, {"arg0": 1}),
            (engine.free_managed_buffer, {"arg0": 1, "arg1": 1}),
            (engine.read_bytes_from_buffer, {"arg0": 1, "arg1": 1})]:
        with pytest.raises(TypeError):
            call(**arguments)


def test_failures_are_negative_and_named(pair: tuple[TransferEngine, TransferEngine],
                                         capfd: pytest.CaptureFixture[str]) -> None:
    one, two = pair
    mine, theirs = Memory(one, 4096), Memory(two, 4096)
    unregistered = numpy.zeros(4096, dtype=numpy.uint8)
    peer = name_of(two)
    assert one.transfer_sync_write(peer, unregistered.ctypes.data, theirs.address, 10) == -1
    for _ in range(3):
        assert one.transfer_sync_write(peer, mine.address, unregistered.ctypes.data, 10) == -1
    said = capfd.readouterr().err
    assert said.count("\n") == 2 and peer in said and "not registered" in said, said
    assert one.transfer_sync_write(peer, mine.address, theirs.address, 10) == 0
    assert one.transfer_sync_write(peer, mine.address, theirs.address + 4090, 10) == -1
    assert peer in capfd.readouterr().err
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        dead = f"127.0.0.1:{nobody.getsockname()[1]}"
        assert one.transfer_sync_write(dead, mine.address, theirs.address, 10) == -1
        assert dead in capfd.readouterr().err
    assert one.transfer_sync_write("no name", mine.address, theirs.address, 10) == -1


def test_each_reason_of_a_failure_is_logged(pair: tuple[TransferEngine, TransferEngine],
                                            capfd: pytest.CaptureFixture[str]) -> None:
    one, two = pair
    mine, theirs = Memory(one, 4096), Memory(two, 4096)
    unregistered = numpy.zeros(4096, dtype=numpy.uint8)
    nowhere = unregistered.ctypes.data
    peer = name_of(two)
    lines = set()
    for here, there, length in [(nowhere, theirs.address, 10), (mine.address, nowhere, 10),
                                (mine.address, theirs.address, 8192)]:
        for i in range(20):  # addresses differ, as those of a caller that goes on do
            assert one.transfer_sync_write(peer, here + i, there + i, length) == -1
        said = capfd.readouterr().err
        assert said.count("\n") == 1 and peer in said and f" {length} bytes " in said, said
        lines.add(said)
    assert len(lines) == 3
    assert "19 more" in said, said


def test_registration(pair: tuple[TransferEngine, TransferEngine]) -> None:
    one, two = pair
    memory = numpy.zeros(3 * 4096, dtype=numpy.uint8)
    base = memory.ctypes.data
    assert one.register_memory(base, 0) == INVALID
    assert one.register_memory(0x1000, 4096) == INVALID  # not mapped
    assert one.unregister_memory(base) == NOT_REGISTERED
    assert one.register_memory(base, 4096, "cpu:0") == 0
    assert one.register_memory(buffer_addr=base, capacity=8192) == 0  # again, and overlapping
    assert one.unregister_memory(base) == 0
    assert one.unregister_memory(base) == 0
    assert one.unregister_memory(base) == NOT_REGISTERED
    # All or nothing.
    assert one.batch_register_memory([base, base + 4096, 0x1000], [4096, 4096, 4096]) == INVALID
    assert one.unregister_memory(base) == NOT_REGISTERED
    addresses = numpy.array([base, base + 4096])
    assert one.batch_register_memory(addresses, [4096, 4096], "*") == 0
    assert one.batch_unregister_memory([base, 0x1000, base + 4096]) == NOT_REGISTERED
    assert one.unregister_memory(base + 4096) == NOT_REGISTERED
    assert one.batch_register_memory([], []) == 0 and one.batch_unregister_memory([]) == 0
    theirs = Memory(two, 4096)
    assert two.transfer_sync_write(name_of(one), theirs.address, base, 10) == -1


def test_managed_buffers(pair: tuple[TransferEngine, TransferEngine]) -> None:
    one, two = pair
    mine = [one.allocate_managed_buffer(10_000) for _ in range(100)]
    assert len(set(mine)) == 100 and 0 not in mine
    theirs = two.allocate_managed_buffer(MEBIBYTE)
    assert one.write_bytes_to_buffer(mine[7], b"hello" * 2000, 10_000) == 0
    assert one.transfer_sync_write(name_of(two), mine[7], theirs + 3, 10_000) == 0
    assert two.read_bytes_from_buffer(theirs + 3, 10_000) == b"hello" * 2000
    assert one.free_managed_buffer(mine[0], 20_000) == INVALID  # another class
    for buffer in mine:
        assert one.free_managed_buffer(buffer, 16_384) == 0
    assert one.free_managed_buffer(mine[0], 10_000) == INVALID
    assert one.allocate_managed_buffer(0) == 0
    assert one.allocate_managed_buffer(1 << 40) == 0
    assert one.allocate_managed_buffer(1 << 63) == 0
    assert two.free_managed_buffer(theirs, MEBIBYTE) == 0


@pytest.mark.parametrize("size", [100, 70_000, 4 * MEBIBYTE])
def test_ranges_of_one_engine_may_overlap(size: int) -> None:
    engine = opened()
    memory = Memory(engine, 2 * size)
    for to, source in ((1, 0), (0, 1), (size // 3, 0), (0, size // 3)):
        expected = memory.bytes.copy()
        expected[to:to + size] = memory.bytes[source:source + size].copy()
        assert engine.transfer_sync_write(
            name_of(engine), memory.address + source, memory.address + to, size) == 0
        assert (memory.bytes == expected).all()
        expected[to:to + size] = memory.bytes[source:source + size].copy()
        batch = engine.batch_transfer_async_read(
            name_of(engine), [memory.address + to], [memory.address + source], [size])
        assert engine.get_batch_transfer_status([batch]) == 0
        assert (memory.bytes == expected).all()


def test_bytes_in_and_out_of_memory() -> None:
    engine = TransferEngine()  # needs no engine
    memory = numpy.zeros(100, dtype=numpy.uint8)
    base = memory.ctypes.data
    assert engine.write_bytes_to_buffer(base, b"0123456789", 4) == 0
    assert engine.write_bytes_to_buffer(base + 4, "äb", 3) == 0
    assert engine.write_bytes_to_buffer(base + 7, numpy.arange(3, dtype=numpy.uint8), 3) == 0
    assert engine.read_bytes_from_buffer(base, 11) == b"0123" + "äb".encode() + b"\0\1\2\0"
    assert engine.write_bytes_to_buffer(base, b"too short", 10) == INVALID
    assert engine.write_bytes_to_buffer(base, b"", 0) == 0
    with pytest.raises(TypeError):
        engine.write_bytes_to_buffer(base, 5, 1)
    # What isn't mapped is refused; nobody dies of it.
    assert engine.write_bytes_to_buffer(0x1000, b"x", 1) == INVALID
    assert engine.read_bytes_from_buffer(0x1000, 10) == b""
    assert engine.read_bytes_from_buffer(base, 1 << 62) == b""


def test_initialize_again_and_after_a_failure(capfd: pytest.CaptureFixture[str]) -> None:
    engine = TransferEngine()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        name = f"127.0.0.1:{taken.getsockname()[1]}"
        assert engine.initialize(name, "memory://again", "tcp", "") == -1
        assert name in capfd.readouterr().err
        # With P2PHANDSHAKE the port is the caller's own business.
        assert engine.initialize(name, "P2PHANDSHAKE", "tcp", "") == 0
    port = engine.get_rpc_port()
    assert port > 0 and engine.get_engine_ptr() != 0
    assert type(engine.get_engine()) is module.InnerTransferEngine
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == -1  # it is already
    assert engine.get_rpc_port() == port


@pytest.mark.parametrize("host", ["::1", "[::1]", "[::1]:12345"])
def test_c8_ipv6(host: str) -> None:
    one, two = opened(host), opened(host)
    peer = name_of(two, "[::1]")
    mine, theirs = Memory(one, 4096), Memory(two, 4096)
    assert one.transfer_sync_write(peer, mine.address, theirs.address, 4096) == 0
    assert (mine.bytes == theirs.bytes).all()


def test_a_slash_before_a_name_is_passed_over(pair: tuple[TransferEngine, TransferEngine]) -> None:
    one, two = pair
    mine, theirs = Memory(one, 4096), Memory(two, 4096)
    peer = "/" + name_of(two)
    assert one.transfer_sync_write(peer, mine.address, theirs.address, 4096) == 0
    assert one.send_probe(peer) == 0 and one.send_notify(peer, "a", "b") == 0
    assert one.get_first_buffer_address(peer) == theirs.address


@pytest.mark.parametrize("forced", ["0", "1"])
def test_c1_many_blocks_between_processes(forced: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MC_FORCE_TCP", forced)
    count, size = 64, MEBIBYTE
    one = opened()
    mine = Memory(one, count * size)
    with PeerProcess(count * size) as peer:
        wrong: list[int] = []

        def work(thread: int) -> None:
            for i in range(thread, count, 4):
                wrong.append(one.transfer_sync_write(
                    peer.name, mine.address + i * size, peer.address + i * size, size))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(wrong) == {0} and len(wrong) == count
        before = mine.bytes.copy()
        mine.bytes[:] = 0
        pieces = mine.pieces(count, size)
        there = [peer.address + i * size for i in range(count)]
        assert one.batch_transfer_sync_read(peer.name, pieces, there, [size] * count) == 0
        assert (mine.bytes == before).all()


@pytest.mark.parametrize("forced, managed", [("0", False), ("0", True), ("1", False)],
                         ids=["process_vm", "mapped", "tcp"])
@pytest.mark.parametrize("count", [3000, 40_000, 200_000])
def test_c25_very_many_pieces(count: int, forced: str, managed: bool,
                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MC_FORCE_TCP", forced)
    size, room = 4096, 8192  # of pieces: the rest go over them again
    one = opened()
    mine = Memory(one, room * size)
    with PeerProcess(room * size, managed=managed) as peer:
        places = numpy.arange(count, dtype=numpy.int64) % room * size
        lengths = numpy.full(count, size, dtype=numpy.int64)
        assert one.batch_transfer_sync_write(
            peer.name, mine.address + places, peer.address + places, lengths) == 0
        sent = min(count, room) * size
        assert peer.read(0, sent) == mine.bytes[:sent].tobytes()
        assert one.transfer_sync_write(peer.name, mine.address, peer.address + 100, 100) == 0
        assert peer.read(100, 100) == mine.bytes[:100].tobytes()


def test_c6_a_namesake_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed and started again under the same host:port: what is new is reached, and a registration
    of the old life is not taken for one of the new."""
    one = opened()
    mine = Memory(one, MEBIBYTE)
    with PeerProcess(MEBIBYTE) as old:
        assert one.transfer_sync_write(old.name, mine.address, old.address, 4096) == 0
        old.kill()
        begin = time.monotonic()
        assert one.transfer_sync_write(old.name, mine.address, old.address, 4096) == -1
        assert time.monotonic() - begin < 5
        with PeerProcess(MEBIBYTE, name=old.name) as new:
            assert new.name == old.name
            assert one.transfer_sync_write(new.name, mine.address, new.address, 4096) == 0
            assert new.read(0, 4096) == mine.bytes[:4096].tobytes()
            if new.address != old.address:
                assert one.transfer_sync_write(new.name, mine.address, old.address, 4096) == -1


def test_threads_share_an_engine(pair: tuple[TransferEngine, TransferEngine]) -> None:
    """Transfers, registrations and managed buffers of eight threads at once."""
    one, two = pair
    theirs = Memory(two, 8 * 65536)
    wrong: list[str] = []

    def work(thread: int) -> None:
        for i in range(50):
            mine = Memory(one, 65536, (thread * 50 + i) % 251)
            target = theirs.address + thread * 65536
            if one.transfer_sync_write(name_of(two), mine.address, target, 65536) != 0:
                wrong.append("write")
            if not (theirs.bytes[thread * 65536:(thread + 1) * 65536] == mine.bytes).all():
                wrong.append("bytes")
            if one.unregister_memory(mine.address) != 0:
                wrong.append("unregister")
            buffer = one.allocate_managed_buffer(10_000 * (thread + 1))
            if buffer == 0 or one.free_managed_buffer(buffer, 10_000 * (thread + 1)) != 0:
                wrong.append("managed")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def counted_while(call: Callable[[], Any]) -> int:
    """How often another thread got the GIL during the call."""
    count, end = 0, threading.Event()

    def run() -> None:
        nonlocal count
        while not end.wait(0.001):
            count += 1

    thread = threading.Thread(target=run)
    thread.start()
    call()
    counted = count
    end.set()
    thread.join()
    return counted


def test_calls_that_wait_let_other_threads_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The peer is stopped, not dead, so that the call waits for its deadline: the shortest, 5 s."""
    monkeypatch.setenv("MC_TRANSFER_TIMEOUT", "1")
    monkeypatch.setenv("MC_FORCE_TCP", "1")
    one = opened()
    mine = Memory(one, 4096)
    with PeerProcess(4096) as peer:
        assert one.transfer_sync_write(peer.name, mine.address, peer.address, 4096) == 0
        peer.stop()
        codes: list[int] = []
        begin = time.monotonic()
        counted = counted_while(lambda: codes.append(
            one.transfer_sync_write(peer.name, mine.address, peer.address, 4096)))
        assert codes == [-1] and 4 < time.monotonic() - begin < 8
        assert counted > 500


def test_names_at_a_metadata_server(metadata_server: str) -> None:
    one, two = opened("127.0.0.1", metadata_server), TransferEngine()
    port = free_port()
    # The form of initialize_ext: kind and server apart.
    assert two.initialize_ext(f"127.0.0.1:{port}", metadata_server.removeprefix("http://"), "tcp",
                              "", "http") == 0
    assert two.get_rpc_port() == port
    mine, theirs = Memory(one, 4096), Memory(two, 4096)
    assert one.transfer_sync_write(f"127.0.0.1:{port}", mine.address, theirs.address, 4096) == 0
    assert (mine.bytes == theirs.bytes).all()
    assert one.transfer_sync_write("127.0.0.1:1", mine.address, theirs.address, 4096) == -1


def test_c31_done_is_not_said_before_the_last_byte_is_there() -> None:
    one = opened()
    count, size = 2000, 16 * KIBIBYTE
    mine = Memory(one, count * size, 0)
    with PeerProcess(count * size) as peer:
        source = Memory(one, count * size)
        every = numpy.arange(count, dtype=numpy.int64) * size
        sizes = numpy.full(count, size, dtype=numpy.int64)
        assert one.batch_transfer_sync_write(
            peer.name, source.address + every, peer.address + every, sizes) == 0
        for _ in range(5):
            mine.bytes[:] = 0
            batch = one.batch_transfer_async_read(
                peer.name, mine.address + every, peer.address + every, sizes)
            assert batch > 0
            while (status := one.transfer_check_status(batch)) == 0:
                pass
            assert status == 1
            assert (mine.bytes == source.bytes).all()
            assert one.transfer_check_status(batch) == -1  # it is freed
        # One piece of many can't be read: the batch says so.
        every[count // 2] += count * size
        batch = one.batch_transfer_async(
            peer.name, mine.address + numpy.arange(count) * size, peer.address + every, sizes,
            TransferOpcode.READ)
        while (status := one.transfer_check_status(batch)) == 0:
            pass
        assert status == -1 and one.transfer_check_status(batch) == -1


def test_batches_without_waiting(pair: tuple[TransferEngine, TransferEngine]) -> None:
    one, two = pair
    peer = name_of(two)
    mine, theirs = Memory(one, MEBIBYTE), Memory(two, MEBIBYTE, 0)
    batches = [one.batch_transfer_async_write(peer, mine.pieces(4, 4096), theirs.pieces(4, 4096),
                                              [4096] * 4),
               one.batch_transfer_async(peer, [mine.address + 16384], [theirs.address + 16384],
                                        [4096], TransferOpcode.Write),
               one.transfer_submit_write(peer, mine.address + 20480, theirs.address + 20480, 4096)]
    assert 0 not in batches and len(set(batches)) == 3
    assert one.get_batch_transfer_status(batches) == 0
    assert (theirs.bytes[:24576] == mine.bytes[:24576]).all()
    assert one.get_batch_transfer_status(batches) == -1  # they are freed
    assert one.get_batch_transfer_status([]) == 0
    good = one.transfer_submit_write(peer, mine.address, theirs.address, 10)
    bad = one.transfer_submit_write(peer, mine.address, theirs.address + MEBIBYTE, 10)
    assert one.get_batch_transfer_status([bad, good]) == -1
    assert one.transfer_check_status(good) == -1  # waited for and freed all the same
    assert one.transfer_check_status(12345) == -1
    assert one.batch_transfer_async_write(peer, [1, 2], [1], [1]) == 0
    assert one.transfer_submit_write("127.0.0.1:1", mine.address, theirs.address, 10) == 0


def test_a_batch_that_is_not_done_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MC_TRANSFER_TIMEOUT", "1")  # means 5, the shortest
    monkeypatch.setenv("MC_FORCE_TCP", "1")
    one = opened()
    mine = Memory(one, 4096)
    with PeerProcess(4096) as peer:
        assert one.transfer_sync_write(peer.name, mine.address, peer.address, 4096) == 0
        peer.stop()
        polled, waited, other = (
            one.transfer_submit_write(peer.name, mine.address, peer.address, 4096)
            for _ in range(3))
        begin = time.monotonic()
        codes: list[int] = []
        counted = counted_while(
            lambda: codes.append(one.get_batch_transfer_status([waited, other])))
        assert codes == [-1] and 4 < time.monotonic() - begin < 8 and counted > 500
        while (status := one.transfer_check_status(polled)) == 0:
            assert time.monotonic() - begin < 8
        assert status == -2 and one.transfer_check_status(polled) == -2


def test_notes_go_along_with_transfers(pair: tuple[TransferEngine, TransferEngine]) -> None:
    one, two = pair
    peer = name_of(two)
    mine, theirs = Memory(one, 4096), Memory(two, 4096)
    assert two.get_notifies() == []
    note = TransferNotify("first", "mit Umlaut: ä")
    assert one.transfer_sync(peer, mine.address, theirs.address, 4096, TransferOpcode.Write, note) == 0
    assert (theirs.bytes == mine.bytes).all()
    assert one.transfer_sync(peer, 0, 0, 0, TransferOpcode.Write,
                             notify=TransferNotify("empty", "")) == 0
    other = TransferNotify()
    other.name, other.msg = "batch", "x" * 100_000
    assert one.batch_transfer_sync(peer, [mine.address], [theirs.address], [10],
                                   TransferOpcode.READ, other) == 0
    assert one.send_notify(peer, name="alone", msg="no data") == 0
    # Nobody hears of a transfer that failed.
    assert one.transfer_sync(peer, mine.address, theirs.address + 4096, 1, TransferOpcode.Write,
                             TransferNotify("failed", "")) == -1
    assert one.transfer_sync(peer, mine.address, theirs.address, 1, TransferOpcode.Write, None) == 0
    got = two.get_notifies()
    assert all(type(n) is TransferNotify for n in got)
    assert [(n.name, n.msg) for n in got] == [
        ("first", "mit Umlaut: ä"), ("empty", ""), ("batch", "x" * 100_000), ("alone", "no data")]
    assert two.get_notifies() == []
    assert one.send_notify(peer, "large", "x" * (2 * MEBIBYTE)) == -1
    assert one.send_notify(peer, b"raw", b"\xff\0") == 0
    assert [(n.name, n.msg) for n in two.get_notifies()] == [("raw", "\udcff\0")]
    assert one.send_notify("127.0.0.1:1", "a", "b") == -1


def test_a_note_that_is_too_large_is_refused_before_bytes_move(
        pair: tuple[TransferEngine, TransferEngine], capfd: pytest.CaptureFixture[str]) -> None:
    one, two = pair
    mine, theirs = Memory(one, 4096, 1), Memory(two, 4096, 2)
    for note, word in ((TransferNotify("n" * 4097, ""), "name"),
                       (TransferNotify("", "m" * (MEBIBYTE + 1)), "message")):
        assert one.transfer_sync(name_of(two), mine.address, theirs.address, 4096,
                                 TransferOpcode.Write, note) == -1
        assert word in capfd.readouterr().err
        assert (theirs.bytes == 2).all()
        assert one.transfer_sync(name_of(two), mine.address, theirs.address, 0,
                                 TransferOpcode.Write) == 0


def test_probe_and_first_buffer() -> None:
    one = opened()
    with PeerProcess(4096) as peer:
        assert one.get_first_buffer_address(peer.name) == peer.address
        assert one.send_probe(peer.name) == 0
        assert one.send_probe(peer_server_name=peer.name) == 0
        peer.kill()
        begin = time.monotonic()
        assert one.send_probe(peer.name) < 0
        assert one.get_first_buffer_address(peer.name) == 0
        assert time.monotonic() - begin < 3
    empty = opened()
    assert one.get_first_buffer_address(name_of(empty)) == 0
    assert one.send_probe(name_of(empty)) == 0
