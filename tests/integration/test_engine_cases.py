"""Proves cases C2 (hostile writes), C3 (client ports run out), C20 (one dead peer among many), C23 (a call times out) and C32 (after an error
return), with engines in processes of their own, over the path that is chosen and over sockets only. What is asserted are
counts and outcomes; times only as the deadlines that were set."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy
import pytest
from engine_peer import PeerProcess
from mooncake.engine import TransferEngine

MEBIBYTE = 1 << 20
LARGE = 128 * MEBIBYTE  # takes long enough to be stopped in the middle
DEADLINE = 5.0  # seconds, the shortest there is; a byte adds a nanosecond
SLACK = 10.0  # of a machine with other things to do

paths = pytest.mark.parametrize("forced", ["0", "1"], ids=["auto", "tcp"])


@pytest.fixture(autouse=True)
def short_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MC_TRANSFER_TIMEOUT", "5")


def opened() -> TransferEngine:
    engine = TransferEngine()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    return engine


def registered(engine: TransferEngine, size: int, fill: int) -> numpy.ndarray:
    memory = numpy.full(size, fill, dtype=numpy.uint8)
    assert engine.register_memory(memory.ctypes.data, size) == 0
    return memory


# Runs in a network namespace of its own, which has 200 ports for connections and 5 others to
# listen on: brings up loopback, then moves data between two processes, 16 threads at a time.
FEW_PORTS = """
import fcntl, os, socket, struct, sys, threading
sys.path.insert(0, sys.argv[1])
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    fcntl.ioctl(s, 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: up, running
with open("/proc/sys/net/ipv4/ip_local_port_range", "w") as limits:
    limits.write("40000 40199")
from engine_peer import PeerProcess
import numpy
from mooncake.engine import TransferEngine

def sockets():
    # Of the namespace, also those that only wait to be forgotten.
    return sum(len(open(f"/proc/net/{kind}").readlines()) - 1 for kind in ("tcp", "tcp6"))

engine = TransferEngine()
assert engine.initialize("127.0.0.1:30001", "P2PHANDSHAKE", "tcp", "") == 0
threads, each, size = 16, 313, 4096
mine = numpy.frombuffer(os.urandom(threads * size), dtype=numpy.uint8).copy()
assert engine.register_memory(mine.ctypes.data, mine.nbytes) == 0
codes, most = [], []
with PeerProcess(threads * size) as peer:
    def work(thread):
        for i in range(each):
            codes.append(engine.transfer_sync_write(
                peer.name, mine.ctypes.data + thread * size, peer.address + thread * size, size))
            if i % 50 == 0:
                most.append(sockets())
    workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    most.append(sockets())
    same = peer.read(0, threads * size) == mine.tobytes()
print(len(codes), codes.count(0), same, max(most))
"""


@paths
def test_c3_client_ports_do_not_run_out(forced: str) -> None:
    """5000 transfers with 200 client ports: all succeed, over a number of sockets that does not
    grow with them."""
    own_network = ["unshare", "--map-root-user", "--net"]
    if subprocess.run([*own_network, "true"], capture_output=True).returncode != 0:
        pytest.skip("C3 NOT PROVEN HERE: this sandbox allows no network namespace (unshare -rn), "
                    "and the port range of the whole machine is not ours to cut")
    done = subprocess.run(
        [*own_network, sys.executable, "-c", FEW_PORTS, os.path.dirname(__file__)],
        capture_output=True, text=True, timeout=120, env=os.environ | {"MC_FORCE_TCP": forced})
    assert done.returncode == 0, done.stderr
    calls, good, same, most = done.stdout.split()
    assert (int(calls), int(good), same) == (16 * 313, 16 * 313, "True")
    assert int(most) < 60, "sockets at any time, both ends counted"


@paths
def test_c20_one_dead_peer_does_not_hold_up_the_others(
        forced: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads keep writing to two peers while a third peer dies and is asked for again and
    again: each of its failures is known at once, not at a deadline, and all others succeed."""
    monkeypatch.setenv("MC_FORCE_TCP", forced)
    monkeypatch.setenv("MC_TRANSFER_TIMEOUT", "60")
    engine, size = opened(), 65536
    mine = registered(engine, 3 * size, 1)
    codes: dict[str, list[int]] = {}
    stop = threading.Event()

    def keep_writing(peer: PeerProcess, source: int) -> None:
        while not stop.is_set():
            codes[peer.name].append(
                engine.transfer_sync_write(peer.name, source, peer.address, size))

    with PeerProcess(size) as one, PeerProcess(size) as two, PeerProcess(size) as dead:
        for peer in (one, two, dead):
            codes[peer.name] = []
            assert engine.transfer_sync_write(
                peer.name, mine.ctypes.data, peer.address, size) == 0
        threads = [threading.Thread(target=keep_writing, args=(peer, mine.ctypes.data + i * size))
                   for i, peer in enumerate((one, two))]
        for thread in threads:
            thread.start()
        dead.kill()
        source, before = mine.ctypes.data + 2 * size, time.monotonic()
        first = engine.transfer_sync_write(dead.name, source, dead.address, size)
        known = time.monotonic() - before
        moved = [len(codes[peer.name]) for peer in (one, two)]
        later = [engine.transfer_sync_write(dead.name, source, dead.address, size)
                 for _ in range(10)]
        all_known = time.monotonic() - before
        while any(len(codes[peer.name]) < count + 100 for peer, count in zip((one, two), moved)):
            stop.wait(0.01)  # the others go on
        stop.set()
        for thread in threads:
            thread.join()
        assert first == -1 and later == [-1] * 10
        assert set(codes[one.name]) == set(codes[two.name]) == {0}
        # Sixty seconds were allowed to each.
        assert known < SLACK and all_known < SLACK


def wait_and_time(engine: TransferEngine, batch: int) -> tuple[int, float]:
    begin = time.monotonic()
    return engine.get_batch_transfer_status([batch]), time.monotonic() - begin


@pytest.fixture
def stuck_peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[PeerProcess]:
    """Over sockets only: through shared memory a stopped peer is read and written all the same."""
    monkeypatch.setenv("MC_FORCE_TCP", "1")
    with PeerProcess(LARGE) as peer:
        yield peer


def test_c23_a_read_that_timed_out_leaves_its_buffer_alone(stuck_peer: PeerProcess) -> None:
    engine = opened()
    mine, probe = registered(engine, LARGE, 7), registered(engine, 4096, 9)
    name, there = stuck_peer.name, stuck_peer.address
    assert engine.transfer_sync_write(name, probe.ctypes.data, there, 4096) == 0
    batch = engine.batch_transfer_async_read(name, [mine.ctypes.data], [there], [LARGE])
    stuck_peer.stop()
    code, seconds = wait_and_time(engine, batch)
    assert code == -1 and seconds < DEADLINE + SLACK
    mine[:] = 7  # reused, from here on for something else
    stuck_peer.go_on()
    # What the peer had still to send has come before the answers to these.
    for _ in range(20):
        assert engine.transfer_sync_read(name, probe.ctypes.data, there, 4096) == 0
    assert stuck_peer.read(0, 1) == b"\x09"
    assert (mine == 7).all()
    assert engine.transfer_sync_read(name, mine.ctypes.data, there, 4096) == 0
    assert (mine[:4096] == 9).all() and (mine[4096:] == 7).all()


def test_c23_c32_a_write_that_timed_out_takes_nothing_more_from_its_source(
        stuck_peer: PeerProcess) -> None:
    engine = opened()
    mine, probe = registered(engine, LARGE, 1), registered(engine, 4096, 3)
    name, there = stuck_peer.name, stuck_peer.address
    assert engine.transfer_sync_write(name, probe.ctypes.data, there, 4096) == 0
    batch = engine.batch_transfer_async_write(name, [mine.ctypes.data], [there], [LARGE])
    stuck_peer.stop()
    code, seconds = wait_and_time(engine, batch)
    assert code == -1 and seconds < DEADLINE + SLACK
    mine[:] = 2  # reused at once: nobody may ever see a 2
    stuck_peer.go_on()
    for _ in range(20):
        assert engine.transfer_sync_write(name, probe.ctypes.data, there, 4096) == 0
    got = numpy.frombuffer(stuck_peer.read(0, LARGE), dtype=numpy.uint8)
    assert (got[:4096] == 3).all()
    assert not (got == 2).any(), "a byte written after the call had returned"
    assert ((got == 0) | (got == 1) | (got == 3)).all()


@pytest.mark.parametrize("managed", [False, True], ids=["process_vm", "mapped"])
def test_c23_a_stopped_peer_is_read_and_written_through_shared_memory(managed: bool) -> None:
    """On one host nobody needs the peer's help: the calls succeed, and are right."""
    engine = opened()
    mine = registered(engine, MEBIBYTE, 5)
    with PeerProcess(MEBIBYTE, managed=managed) as peer:
        assert engine.transfer_sync_write(peer.name, mine.ctypes.data, peer.address, 4096) == 0
        peer.stop()
        assert engine.transfer_sync_write(peer.name, mine.ctypes.data, peer.address, MEBIBYTE) == 0
        mine[:] = 6
        assert engine.transfer_sync_read(peer.name, mine.ctypes.data, peer.address, MEBIBYTE) == 0
        assert (mine == 5).all()
        mine[:] = 6
        peer.go_on()
        assert peer.read(0, MEBIBYTE) == b"\x05" * MEBIBYTE


@paths
def test_c32_after_a_batch_that_failed_its_source_is_ours(
        forced: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One piece in the middle names what is not registered: the call fails, and what is put into
    the source after it has returned is never seen by the peer."""
    monkeypatch.setenv("MC_FORCE_TCP", forced)
    engine, count, size = opened(), 2000, 16384
    mine = registered(engine, count * size, 1)
    every = numpy.arange(count, dtype=numpy.int64) * size
    lengths = numpy.full(count, size, dtype=numpy.int64)
    with PeerProcess(count * size) as peer:
        there = peer.address + every
        there[count // 2] = 4096
        for _ in range(5):
            mine[:] = 1
            assert engine.batch_transfer_sync_write(
                peer.name, mine.ctypes.data + every, there, lengths) == -1
            mine[:] = 2
        assert engine.transfer_sync_read(peer.name, mine.ctypes.data, peer.address, 10) == 0
        got = numpy.frombuffer(peer.read(0, count * size), dtype=numpy.uint8)
        assert ((got == 0) | (got == 1)).all(), "a byte written after the call had returned"


@paths
def test_c2_a_write_to_read_only_memory_ends_nobody(
        monkeypatch: pytest.MonkeyPatch, forced: str) -> None:
    """Model weights, mapped for reading and registered: peers may read them, and nothing else."""
    monkeypatch.setenv("MC_FORCE_TCP", forced)
    engine = opened()
    mine = registered(engine, MEBIBYTE, 1)
    with PeerProcess(MEBIBYTE, weights=True) as peer:
        for size in (64, 40_000, MEBIBYTE):
            assert engine.transfer_sync_write(peer.name, mine.ctypes.data, peer.address, size) == -1
        assert engine.transfer_sync_read(
            peer.name, mine.ctypes.data, peer.address, MEBIBYTE) == 0
        assert not mine.any()
        assert peer.process.poll() is None


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_nothing_is_kept_of_peers_that_have_died() -> None:
    engine = opened()
    mine = registered(engine, MEBIBYTE, 1)
    most = None
    for _ in range(6):
        with PeerProcess(MEBIBYTE, managed=True) as peer:
            assert engine.transfer_sync_write(
                peer.name, mine.ctypes.data, peer.address, MEBIBYTE) == 0
        if most is None:
            most = descriptors()  # with what is left of the first, at the most
        until = time.monotonic() + SLACK
        while descriptors() > most:
            assert time.monotonic() < until, os.listdir("/proc/self/fd")
            os.sched_yield()
