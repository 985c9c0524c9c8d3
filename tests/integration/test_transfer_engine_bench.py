"""Proves transfer_engine_bench as its users run it: a target and an initiator, by address and through a metadata server,
over every path; its lines, which scripts read; and that what it says it moved has been moved: the initiator looks at every
byte, and so does an engine of this process that reads the target's memory."""

import json
import os
import pathlib
import re
import signal
import subprocess
from collections.abc import Iterator

import numpy
import pytest
from engine_peer import wait_for_output
from mooncake.engine import TransferEngine
from test_metadata_server import MetadataServer

PROGRAM = os.path.join(os.environ.get("MOONCAKE_BIN_DIR", ""), "transfer_engine_bench")
SIZE = 4 << 20
COMMON = ("--protocol=tcp", "--local_server_name=127.0.0.1", f"--buffer_size={SIZE}", "--threads=3",
          "--batch_size=16", "--block_size=4000")
MOVED = 3 * 16 * 4000
RESULT = r"^Test completed: duration \d+\.\d\d, batch count (\d+), throughput \d+\.\d{3} MiB/s$"


class Target:
    """Listening when the constructor returns; ends with the `with` block."""

    def __init__(self, *flags: str) -> None:
        self.process = subprocess.Popen([PROGRAM, "--mode=target", *COMMON, *flags],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.line = wait_for_output(self.process)
        match = re.fullmatch(r"Transfer Engine RPC using (.*), listening on (127\.0\.0\.1:\d+)\n",
                             self.line)
        assert match, self.line
        self.method, self.name = match.groups()

    def interrupt(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=20)

    def __enter__(self) -> "Target":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def initiate(target: str, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, *COMMON, "--mode=initiator", f"--segment_id={target}", "--duration=200ms",
         "--report_unit=MiB", "--report_precision=3", *flags],
        capture_output=True, text=True, timeout=60, env=os.environ | environment)


def words_at(name: str, size: int) -> numpy.ndarray:
    """What lies in the target's buffer, as an engine of this process reads it."""
    engine = TransferEngine()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    mine = numpy.zeros(size // 8, dtype=numpy.uint64)
    assert engine.register_memory(mine.ctypes.data, size) == 0
    there = engine.get_first_buffer_address(name)
    assert engine.transfer_sync_read(name, mine.ctypes.data, there, size) == 0
    return mine


@pytest.fixture
def target() -> Iterator[Target]:
    with Target("--metadata_server=P2PHANDSHAKE") as running:
        yield running


@pytest.mark.parametrize("flags, environment, path", [
    ((), {}, "shm"), (("--memory=private",), {}, "process_vm"), ((), {"MC_FORCE_TCP": "1"}, "tcp")])
@pytest.mark.parametrize("operation", ["read", "write"])
def test_every_byte_is_moved(operation: str, flags: tuple[str, ...], environment: dict[str, str],
                             path: str) -> None:
    with Target("--metadata_server=P2PHANDSHAKE", *flags) as target:
        assert target.method == "P2P handshake"
        done = initiate(target.name, "--metadata_server=P2PHANDSHAKE", "--verify",
                        f"--operation={operation}", *flags, **environment)
        assert (done.returncode, done.stderr) == (0, "")
        batches = re.search(RESULT, done.stdout, re.MULTILINE)
        assert batches and int(batches[1]) >= 3, done.stdout
        moved = dict(re.findall(r"^Path taken: (\w+), (\d+) bytes$", done.stdout, re.MULTILINE))
        # The first batches may go another way, while that one is opened.
        assert int(moved[path]) >= int(batches[1]) * 16 * 4000 / 2, done.stdout
        assert f"Data verified: {MOVED} bytes\n" in done.stdout
        expected = numpy.arange(0, SIZE, 8, dtype=numpy.uint64)
        if operation == "write":
            expected[:MOVED // 8] = ~expected[:MOVED // 8]
        assert (words_at(target.name, SIZE) == expected).all()


def test_reads_of_a_target_that_was_written_to_are_not_called_right(target: Target) -> None:
    assert initiate(target.name, "--metadata_server=P2PHANDSHAKE", "--operation=write").returncode == 0
    done = initiate(target.name, "--metadata_server=P2PHANDSHAKE", "--operation=read", "--verify")
    assert done.returncode == 1 and "internal" not in done.stderr
    for word in (target.name, "byte 0 of", "has written", "restart the target", "--operation=write"):
        assert word in done.stderr, done.stderr
    done = initiate(target.name, "--metadata_server=P2PHANDSHAKE", "--operation=write", "--verify")
    assert done.returncode == 0 and "Data verified" in done.stdout, done.stderr


def test_engines_meet_at_a_metadata_server() -> None:
    with MetadataServer() as server, Target(f"--metadata_server={server.url}") as target:
        assert target.method == "new RPC mapping"
        done = initiate(target.name, f"--metadata_server={server.url}", "--verify")
        assert (done.returncode, done.stderr) == (0, "")
        assert re.search(RESULT, done.stdout, re.MULTILINE)
        assert target.interrupt(signal.SIGTERM) == 0
        done = initiate(target.name, f"--metadata_server={server.url}")
        assert done.returncode == 1 and target.name in done.stderr, "its name has left the server"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_target_ends_well_when_it_is_interrupted(target: Target, number: signal.Signals) -> None:
    assert target.interrupt(number) == 0


def test_rdma_falls_back_with_one_notice(target: Target) -> None:
    done = initiate(target.name, "--metadata_server=P2PHANDSHAKE", "--protocol=rdma")
    assert done.returncode == 0 and done.stderr.count("\n") == 1 and "rdma" in done.stderr


@pytest.mark.parametrize("flags, status, words", [
    (("--metadata_server=P2PHANDSHAKE", "--segment_id=127.0.0.1:1"), 1, ["segment_id", "127.0.0.1:1"]),
    (("--metadata_server=127.0.0.1:2379",), 2,
     ["metadata_server", "127.0.0.1:2379", "http://", "P2PHANDSHAKE"]),
    (("--metadata_server=etcd://127.0.0.1:2379",), 2, ["metadata_server", "etcd", "http://"]),
    (("--metadata_server=P2PHANDSHAKE", "--segment_id=127.0.0.1"), 2, ["segment_id", "127.0.0.1"]),
    (("--metadata_server=P2PHANDSHAKE", "--buffer_size=64TiB"), 2, ["buffer_size", "70368744177664"]),
    (("--metadata_server=P2PHANDSHAKE", "--buffer_size=64TiB", "--memory=private"), 2,
     ["buffer_size", "70368744177664", "memory that there is here"]),
    (("--metadata_server=P2PHANDSHAKE", "--protocol=nvlink"), 2, ["protocol", "nvlink"]),
    (("--mode=both",), 2, ["mode", "both", "initiator"])])
def test_what_is_wrong_is_named(flags: tuple[str, ...], status: int, words: list[str]) -> None:
    done = initiate("127.0.0.1:1", *flags)
    assert done.returncode == status and done.stderr.count("\n") == 1, done.stderr
    assert all(word in done.stderr for word in words), done.stderr


def test_memory_beyond_the_budget_is_refused_before_it_is_touched() -> None:
    done = initiate("127.0.0.1:1", "--metadata_server=P2PHANDSHAKE", MOONCAKE_MEMORY_BUDGET="1mb")
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert "buffer_size" in done.stderr and f"{SIZE} bytes" in done.stderr, done.stderr
    assert "MOONCAKE_MEMORY_BUDGET" in done.stderr, done.stderr


def test_flags_and_defaults_are_those_of_the_published_program() -> None:
    surface = pathlib.Path(__file__).parent.parent / "compat" / "surface.json"
    published = json.loads(surface.read_text())["programs"]["transfer_engine_bench"]
    # The one of the machine where the surface was taken: the host's name.
    del published["local_server_name"]
    text = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, timeout=20).stdout
    served = dict(re.findall(r"^  --(\w+)  .*, default (\S+)$", text, re.MULTILINE))
    ignored = set(text.partition("Accepted and ignored:")[2].split())
    for name, flag in published.items():
        assert name in ignored or served[name] == flag["default"], name
    # All of them at once, each at its default, but for who is asked.
    flags = [f"--{name}={flag['default']}" for name, flag in published.items()]
    done = initiate("127.0.0.1:1", *flags, "--metadata_server=P2PHANDSHAKE",
                    "--segment_id=127.0.0.1:1", "--buffer_size=1mb", "--threads=1")
    assert done.returncode == 1 and "segment_id" in done.stderr, done.stderr


def test_a_target_with_less_memory_is_an_error_that_names_it(target: Target) -> None:
    done = initiate(target.name, "--metadata_server=P2PHANDSHAKE", "--block_size=1mb")
    assert done.returncode == 1 and target.name in done.stderr, done.stderr
    assert "Test completed" not in done.stdout
