"""Proves how a Python process with a store begins and ends: importing starts nothing; case C18
(Ctrl-C) with calls under way, with a dead Master and in setup; the end of the interpreter with an
open store; a forked child; and the entry points, which become the bundled programs. Each test runs
a small program of its own and looks at its end.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from conftest import MasterProcess, free_port

SHARED_MEMORY = pathlib.Path("/dev/shm")

OPEN = """
import os, sys, threading
from mooncake.store import BufferPool, MooncakeDistributedStore

def opened(master, **others):
    store = MooncakeDistributedStore()
    code = store.setup({"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE",
                        "global_segment_size": "64MB", "master_server_addr": master, **others})
    assert code == 0, code
    return store

def say(word):
    print(word, flush=True)

def put_for_ever(store, name):
    value, i = os.urandom(1 << 16), 0
    while True:
        store.put(f"{name}/{i}", value)
        i += 1
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", OPEN + program, *arguments], capture_output=True,
                          text=True, timeout=60)


@contextmanager
def started(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A program that is running, and has said `ready`."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", OPEN + program, *arguments], text=True,
                               stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        yield process
    finally:
        process.kill()
        process.communicate()


def interrupt(process: subprocess.Popen[str]) -> tuple[float, str]:
    """Sends SIGINT; seconds until the end, and what was said on stderr."""
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    return time.monotonic() - begin, said


def test_importing_starts_nothing() -> None:
    done = run("""
import mooncake
def world():
    links = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
             if os.path.exists(f"/proc/self/fd/{fd}")]
    sockets = sum("socket" in link or "memfd" in link for link in links)
    return len(os.listdir("/proc/self/task")), sockets
assert world() == (1, 0), world()
MooncakeDistributedStore()
assert world() == (1, 0), world()
""")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("master", ["embedded", "process"])
def test_c18_ctrl_c_while_many_put(master: str, request: pytest.FixtureRequest) -> None:
    if master == "process":
        master = request.getfixturevalue("live_master").address
    before = set(os.listdir(SHARED_MEMORY))
    with started("""
store = opened(sys.argv[1], global_segment_size="1GB")
for n in range(16):
    threading.Thread(target=put_for_ever, args=(store, n), daemon=True).start()
say("ready")
put_for_ever(store, "main")
""", master) as process:
        seconds, said = interrupt(process)
    assert process.returncode == -signal.SIGINT and "KeyboardInterrupt" in said, said
    assert seconds < 3
    assert set(os.listdir(SHARED_MEMORY)) <= before


@pytest.mark.parametrize("call", ["store.put('b', b'x')", "store.get('a')", "store.is_exist('a')",
                                  "store.remove('a')", "store.get_batch(['a', 'b'])",
                                  "store.batch_is_exist(['a'] * 3000)", "store.get_buffer('a')",
                                  "store.put_batch(['b'], [b'x'])", "store.upsert('a', b'y')"])
def test_c18_ctrl_c_with_a_dead_master(call: str, live_master: MasterProcess) -> None:
    with started(f"""
store = opened(sys.argv[1], timeout="30s")
assert store.put("a", b"x") == 0
say("ready")
sys.stdin.readline()
try:
    {call}
except KeyboardInterrupt:
    say("interrupted")
    sys.exit(3)
""", live_master.address) as process:
        live_master.kill()
        process.stdin.write("the Master is dead\n")
        process.stdin.flush()
        wait_until_it_waits(process)
        seconds, said = interrupt(process)
    assert process.returncode == 3 and seconds < 3, said


def wait_until_it_waits(process: subprocess.Popen[str]) -> None:
    """Returns when the main thread waits inside a call: in a lock, or driving the client's loop."""
    place = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/syscall")
    futex_and_epoll_waits = {"x86_64": ("202", "232", "281", "441"),
                             "aarch64": ("98", "22", "441")}[os.uname().machine]
    until = time.monotonic() + 20
    while place.read_text().split()[0] not in futex_and_epoll_waits:
        assert time.monotonic() < until, place.read_text()
        os.sched_yield()


def test_c18_ctrl_c_in_setup() -> None:
    with started("""
say("ready")
opened(sys.argv[1], timeout="30s")
""", f"127.0.0.1:{free_port()}") as process:
        wait_until_it_waits(process)
        seconds, said = interrupt(process)
    assert process.returncode == -signal.SIGINT and "KeyboardInterrupt" in said, said
    assert seconds < 3


def test_a_store_is_usable_after_an_interrupted_call(live_master: MasterProcess) -> None:
    """The Master is stopped, not dead: what waited was interrupted, what comes after is served."""
    with started("""
store = opened(sys.argv[1], timeout="30s")
assert store.put("a", b"x") == 0
say("ready")
sys.stdin.readline()
try:
    store.get("a")
except KeyboardInterrupt:
    say("interrupted")
sys.stdin.readline()
assert store.get("a") == b"x"
""", live_master.address) as process:
        with live_master.stopped():
            process.stdin.write("stopped\n")
            process.stdin.flush()
            wait_until_it_waits(process)
            process.send_signal(signal.SIGINT)
            line = process.stdout.readline()
            assert line == "interrupted\n", process.stderr.read()
        _, said = process.communicate("goes on\n", timeout=30)
    assert process.returncode == 0, said


@pytest.mark.parametrize("threads", [0, 8])
@pytest.mark.parametrize("master", ["embedded", "process"])
def test_the_interpreter_ends_with_an_open_store(
        master: str, threads: int, request: pytest.FixtureRequest) -> None:
    if master == "process":
        master = request.getfixturevalue("live_master").address
    begin = time.monotonic()
    done = run("""
store = opened(sys.argv[1])
for n in range(int(sys.argv[2])):
    threading.Thread(target=put_for_ever, args=(store, n), daemon=True).start()
assert store.put("a", b"x") == 0
""", master, str(threads))
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - begin < 5


def test_the_interpreter_ends_while_a_thread_sets_up() -> None:
    begin = time.monotonic()
    done = run("""
entered = threading.Event()
def work():
    entered.set()
    opened(sys.argv[1], timeout="20s")
threading.Thread(target=work, daemon=True).start()
entered.wait()
""", f"127.0.0.1:{free_port()}")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begin < 5


def test_the_interpreter_ends_with_a_dead_master(live_master: MasterProcess) -> None:
    with started("""
stores = [opened(sys.argv[1]) for _ in range(3)]
say("ready")
sys.stdin.readline()
""", live_master.address) as process:
        live_master.kill()
        begin = time.monotonic()
        process.communicate("end\n", timeout=30)
        assert time.monotonic() - begin < 3
    assert process.returncode == 0


def test_the_interpreter_ends_with_a_shared_engine() -> None:
    """The store, which is closed first, is the engine's user; both have calls under way."""
    done = run("""
from mooncake.engine import TransferEngine
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 1 << 26, 1 << 20, "tcp", "", "embedded",
                   engine=engine) == 0
for n in range(4):
    threading.Thread(target=put_for_ever, args=(store, n), daemon=True).start()
assert store.put("a", b"x") == 0
""")
    assert (done.returncode, done.stderr) == (0, "")


def test_an_atexit_handler_may_wait_for_threads_that_use_the_store() -> None:
    done = run("""
import atexit
stop = threading.Event()
def work():
    while not stop.is_set():
        store.put("a", b"x")
thread = threading.Thread(target=work, daemon=True)
def end():
    stop.set()
    thread.join()
    say("joined")
atexit.register(end)
store = opened("embedded")
thread.start()
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "joined\n", "")


def test_a_forked_child_has_no_store_until_it_sets_one_up() -> None:
    done = run("""
store = opened("embedded")
assert store.put("kept", b"kept") == 0
handle, pool = store.get_buffer("kept"), BufferPool(store)
lease = pool.acquire(6)
lease.buffer[:] = b"leased"
for n in range(4):
    threading.Thread(target=put_for_ever, args=(store, n), daemon=True).start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        assert store.put("a", b"x") == -600 and store.get("a") == b""
        assert store.is_exist("a") == -600 and store.remove("a") == -600
        assert store.batch_is_exist(["a", "b"]) == [-600, -600] and store.get_batch(["a"]) == [b""]
        assert store.register_buffer(4096, 1) == -600 and store.health_check() == 1
        assert bytes(handle) == b"kept" and lease.buffer == b"leased"
        lease.release()
        assert store.close() == 0
        assert store.setup({"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE",
                            "global_segment_size": "1MB", "master_server_addr": "embedded"}) == 0
        assert store.put("a", b"y") == 0 and store.get("a") == b"y"
        del store
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert store.put("a", b"x") == 0 and store.get("a") == b"x"
""")
    assert done.returncode == 0, done.stderr


SCRIPTS = re.findall(r'^(\w+) = "mooncake\.cli:(\w+)"$',
                     (pathlib.Path(__file__).parents[2] / "pyproject.toml").read_text(), re.MULTILINE)


@pytest.mark.parametrize("name, function", SCRIPTS)
def test_console_scripts_become_the_programs_of_their_names(name: str, function: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"from mooncake import cli; cli.{function}()", "--version"],
        capture_output=True, text=True, timeout=30)
    assert done.returncode == 0 and done.stdout.startswith(f"{name} "), done


def test_the_entry_points_become_the_programs() -> None:
    done = subprocess.run([sys.executable, "-m", "mooncake.demo", "--help"], capture_output=True,
                          text=True, timeout=30)
    assert done.returncode == 0 and "--requests" in done.stdout, done.stderr
    ports = [f"-rpc_port={free_port()}", f"-metrics_port={free_port()}"]
    with subprocess.Popen([sys.executable, "-c", "from mooncake import cli; cli.main()",
                           "-rpc_address=127.0.0.1", "-metrics_host=127.0.0.1", *ports],
                          stdout=subprocess.PIPE, text=True) as process:
        assert "ready" in process.stdout.readline()
        assert os.readlink(f"/proc/{process.pid}/exe").endswith("/mooncake_master")
        process.terminate()
        assert process.wait(timeout=10) == 0
