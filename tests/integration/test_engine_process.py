"""Proves how a Python process with Transfer Engines begins and ends: importing starts nothing and
needs nothing (case C19); a forked child has no engine until it makes one; the interpreter ends with
engines that are open, also while threads transfer and batches are under way; and Ctrl-C ends a call
that waits. Each test runs a small program of its own and looks at its end."""

import os
import signal
import subprocess
import sys
import time

import pytest
from engine_peer import PeerProcess
from test_python_process import wait_until_it_waits

OPEN = """
import array, os, sys, threading
from mooncake.engine import TransferEngine, TransferNotify

def opened():
    engine = TransferEngine()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    return engine

def name_of(engine):
    return f"127.0.0.1:{engine.get_rpc_port()}"

def say(word):
    print(word, flush=True)
"""


def run(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", OPEN + program, *arguments], capture_output=True,
                          text=True, timeout=60, env=os.environ | environment)


def test_c19_importing_starts_nothing_and_needs_nothing() -> None:
    done = run("""
import mooncake.store
def world():
    links = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
             if os.path.exists(f"/proc/self/fd/{fd}")]
    sockets = sum("socket" in link or "memfd" in link for link in links)
    return len(os.listdir("/proc/self/task")), sockets
assert world() == (1, 0), world()
TransferEngine()
assert world() == (1, 0), world()
libraries = open("/proc/self/maps").read()
for device in ("cuda", "ibverbs", "fabric", "numpy"):
    assert device not in libraries, device
""")
    assert (done.returncode, done.stderr) == (0, "")


def test_numpy_is_not_needed() -> None:
    done = run("""
sys.modules["numpy"] = None
one, two = opened(), opened()
mine, theirs = one.allocate_managed_buffer(8192), two.allocate_managed_buffer(8192)
assert one.write_bytes_to_buffer(mine, b"abcd" * 2048, 8192) == 0
lists = [mine, mine + 4096], [theirs + 4096, theirs], [4096, 4096]
assert one.batch_transfer_sync_write(name_of(two), *lists) == 0
assert one.batch_transfer_sync_write(name_of(two), *(array.array("Q", x) for x in lists)) == 0
assert two.read_bytes_from_buffer(theirs, 8192) == b"abcd" * 2048
""")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_request_for_which_there_is_no_memory_fails_as_others_do() -> None:
    done = run("""
import resource
one, two = opened(), opened()
mine, theirs = one.allocate_managed_buffer(8192), two.allocate_managed_buffer(8192)
many = array.array("Q", [8]) * 4_000_000
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
for room in (64 << 20, 128 << 20):  # lists don't fit in; requests don't
    resource.setrlimit(resource.RLIMIT_AS, (size + room, resource.RLIM_INFINITY))
    answers = [one.batch_transfer_async_write(name_of(two), many, many, many),
               one.batch_transfer_sync_write(name_of(two), many, many, many)]
    if room == 64 << 20:
        answers.append(one.batch_register_memory(many, many))
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert answers == [0, -1, -1][:len(answers)], answers
    assert one.transfer_sync_write(name_of(two), mine, theirs, 8192) == 0
""")
    assert done.returncode == 0 and done.stderr.count("no memory") == 5, done.stderr


def test_a_forked_child_has_no_engine_until_it_makes_one() -> None:
    done = run("""
engine, other = opened(), opened()
memory = engine.allocate_managed_buffer(1 << 20)
target = other.allocate_managed_buffer(1 << 20)
stop = threading.Event()
def work():
    while not stop.is_set():
        assert engine.transfer_sync_write(name, memory, target, 1 << 16) == 0
name = name_of(other)
threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
for thread in threads:
    thread.start()
batch = engine.transfer_submit_write(name, memory, target, 1 << 16)
for _ in range(5):
    child = os.fork()
    if child == 0:
        assert engine.get_rpc_port() == -1 and engine.get_engine() is None
        assert engine.register_memory(memory, 4096) == -1
        assert engine.unregister_memory(memory) == -1
        assert engine.batch_register_memory([memory], [4096]) == -1
        assert engine.batch_unregister_memory([memory]) == -1
        assert engine.allocate_managed_buffer(4096) == 0
        assert engine.free_managed_buffer(memory, 1 << 20) == -1
        assert engine.transfer_sync_write(name, memory, target, 10) == -1
        assert engine.batch_transfer_sync_read(name, [memory], [target], [10]) == -1
        assert engine.batch_transfer_async_read(name, [memory], [target], [10]) == 0
        assert engine.transfer_submit_write(name, memory, target, 10) == 0
        assert engine.transfer_check_status(batch) == -1
        assert engine.get_batch_transfer_status([batch]) == -1
        assert engine.get_first_buffer_address(name) == 0
        assert engine.send_probe(name) == -1 and engine.send_notify(name, "a", "b") == -1
        assert engine.get_notifies() == []
        # The parent's pools are not here; nobody dies of it.
        assert engine.read_bytes_from_buffer(memory, 10) == b""
        mine = opened()
        buffer = mine.allocate_managed_buffer(100)
        assert mine.write_bytes_to_buffer(buffer, b"from the child", 14) == 0
        assert mine.transfer_sync_write(name, buffer, target + (1 << 17), 14) == 0
        assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
        assert engine.get_rpc_port() > 0
        del engine, mine
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
stop.set()
for thread in threads:
    thread.join()
assert other.read_bytes_from_buffer(target + (1 << 17), 14) == b"from the child"
assert engine.get_batch_transfer_status([batch]) == 0
assert engine.transfer_sync_write(name, memory, target, 10) == 0
""")
    assert done.returncode == 0, done.stderr


def test_the_interpreter_ends_with_open_engines() -> None:
    begin = time.monotonic()
    done = run("""
engines = [opened() for _ in range(3)]
memory = [engine.allocate_managed_buffer(1 << 22) for engine in engines]
held = engines[0].get_engine()
def work(i):
    target = (i + 1) % 3
    while True:
        engines[i].transfer_sync_write(names[target], memory[i], memory[target], 1 << 20)
        engines[i].batch_transfer_async_read(names[target], [memory[i]], [memory[target]], [1 << 20])
names = [name_of(engine) for engine in engines]
for i in range(3):
    threading.Thread(target=work, args=(i,), daemon=True).start()
assert engines[0].transfer_sync_write(names[1], memory[0], memory[1], 1 << 22) == 0
""")
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert time.monotonic() - begin < 10


def test_the_interpreter_ends_while_a_peer_stands_still() -> None:
    """A daemon thread waits for a peer that is stopped: the end of the interpreter ends the call."""
    with PeerProcess(1 << 20) as peer:
        peer.stop()
        begin = time.monotonic()
        done = run("""
engine = opened()
memory = engine.allocate_managed_buffer(1 << 20)
entered = threading.Event()
def work():
    entered.set()
    engine.transfer_sync_write(sys.argv[1], memory, int(sys.argv[2]), 1 << 20)
threading.Thread(target=work, daemon=True).start()
entered.wait()
""", peer.name, str(peer.address), MC_FORCE_TCP="1")
        assert done.returncode == 0, done.stderr
        assert time.monotonic() - begin < 6


WAIT_FOR_A_BATCH = """
batch = engine.transfer_submit_write(name, memory, there, 1 << 20)
assert batch > 0 and engine.transfer_check_status(batch) == 0
calls = lambda: engine.get_batch_transfer_status([batch])
"""
TRANSFER = "calls = lambda: engine.transfer_sync_write(name, memory, there, 1 << 20)"


CALLS = {
    "batch": WAIT_FOR_A_BATCH,
    "transfer": TRANSFER,
    "probe": "calls = lambda: engine.send_probe(name)",
    "notify": "calls = lambda: engine.send_notify(name, 'a', 'b')",
    "first_buffer": "calls = lambda: engine.get_first_buffer_address(name)",
    "first_transfer": "calls = lambda: newcomer.transfer_sync_write(name, other, there, 100)",
    "first_batch": "calls = lambda: newcomer.transfer_submit_write(name, other, there, 100)",
    "first_notify": "calls = lambda: newcomer.send_notify(name, 'a', 'b')",
    "first_question": "calls = lambda: newcomer.get_first_buffer_address(name)",
}


@pytest.mark.parametrize("begin_a_call", CALLS.values(), ids=CALLS)
def test_ctrl_c_ends_a_call_that_waits(begin_a_call: str) -> None:
    with PeerProcess(1 << 20) as peer, subprocess.Popen(
            [sys.executable, "-c", OPEN + f"""
engine, newcomer = opened(), opened()  # which has not met the peer
memory, other = engine.allocate_managed_buffer(1 << 20), newcomer.allocate_managed_buffer(100)
name, there = sys.argv[1], int(sys.argv[2])
assert engine.transfer_sync_write(name, memory, there, 1 << 20) == 0
say("ready")
sys.stdin.readline()
{begin_a_call}
try:
    calls()
except KeyboardInterrupt:
    say("interrupted")
    sys.exit(3)
""", peer.name, str(peer.address)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"MC_FORCE_TCP": "1"}) as process:
        assert process.stdout.readline() == "ready\n"
        peer.stop()
        process.stdin.write("stopped\n")
        process.stdin.flush()
        wait_until_it_waits(process)
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert process.wait(timeout=30) == 3
        assert time.monotonic() - begin < 3
