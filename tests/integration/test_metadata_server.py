"""Proves the metadata server as an operator and as engines meet it: its one line, its limits, its end, the words about a
port that is taken; and case C5: engines that share one address, and were given no port, find each other through it."""

import os
import signal
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator

import numpy
import pytest
from engine_peer import wait_for_output
from mooncake.engine import TransferEngine

PROGRAM = os.path.join(os.environ.get("MOONCAKE_BIN_DIR", ""), "mooncake_http_metadata_server")


class MetadataServer:
    """Serving when the constructor returns; ends with the `with` block."""

    def __init__(self, *flags: str) -> None:
        self.process = subprocess.Popen(
            [PROGRAM, "--host=127.0.0.1", "--port=0", *flags],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = wait_for_output(self.process)
        assert line.startswith("mooncake_http_metadata_server ready http=127.0.0.1:"), line
        self.address = line.strip().rpartition("=")[2]
        self.url = f"http://{self.address}/metadata"

    def call(self, method: str, key: str, body: bytes | None = None) -> tuple[int, bytes]:
        url = f"{self.url}?key={urllib.parse.quote(key, safe='')}"
        return call(method, url, body)

    def __enter__(self) -> "MetadataServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def call(method: str, url: str, body: bytes | None = None) -> tuple[int, bytes]:
    request = urllib.request.Request(url, body, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@pytest.fixture
def server() -> Iterator[MetadataServer]:
    with MetadataServer() as running:
        yield running


def test_keys_have_values_until_they_are_deleted(server: MetadataServer) -> None:
    key = "mooncake/ram/[::1]:1 ä"
    assert server.call("GET", key) == (404, b"metadata not found")
    assert server.call("PUT", key, b"\0\xff") == (200, b"metadata updated")
    assert server.call("GET", key) == (200, b"\0\xff")
    assert server.call("DELETE", key) == (200, b"metadata deleted")
    assert server.call("DELETE", key) == (404, b"metadata not found")
    assert server.call("POST", key, b"")[0] == 405
    assert call("GET", f"http://{server.address}/health") == (200, b'{"status":"ok"}\n')
    assert b"mooncake_metadata_keys 0" in call("GET", f"http://{server.address}/metrics")[1]
    assert call("GET", f"http://{server.address}/other")[0] == 404


def test_what_it_keeps_is_bounded() -> None:
    with MetadataServer("--max-keys=2", "--max_value_size=100", "--max_total_size=150") as server:
        assert server.call("PUT", "a", b"x" * 100)[0] == 200
        assert server.call("PUT", "b", b"x" * 101)[0] == 413
        assert server.call("PUT", "b", b"x" * 100)[0] == 507
        assert server.call("PUT", "b", b"x" * 10)[0] == 200
        assert server.call("PUT", "c", b"")[0] == 507
        assert server.call("PUT", "k" * 3000, b"")[0] == 400
        assert server.call("GET", "a") == (200, b"x" * 100)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_well(server: MetadataServer, number: signal.Signals) -> None:
    assert server.call("PUT", "a", b"1")[0] == 200
    server.process.send_signal(number)
    _, said = server.process.communicate(timeout=20)
    assert server.process.returncode == 0
    assert f"signal {number.value}" in said and said.count("\n") == 1, said


def refused(*flags: str) -> tuple[int, str]:
    done = subprocess.run([PROGRAM, *flags], capture_output=True, text=True, timeout=20)
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_a_port_that_is_taken_is_named(server: MetadataServer) -> None:
    port = server.address.rpartition(":")[2]
    status, said = refused("--host", "127.0.0.1", "--port", port)
    assert status == 1 and "--port (choose another port with --port=N)" in said and server.address in said and said.count("\n") == 1


@pytest.mark.parametrize("flags, words", [
    (["--port=70000"], ["port", "70000"]), (["--prot=1"], ["prot", "--port"]),
    (["--host="], ["host"]), (["--log-level=LOUD"], ["log_level", "LOUD", "WARNING"]),
    (["--max_value_size=2mb"], ["max_value_size", "2mb"]), (["8080"], ["8080"])])
def test_c24_a_wrong_flag_is_named(flags: list[str], words: list[str]) -> None:
    status, said = refused(*flags)
    assert status == 2 and all(word in said for word in words), said


def test_a_flag_that_is_near_to_none_gets_no_advice() -> None:
    assert refused("--nope=1") == (2, "mooncake_http_metadata_server: invalid argument: unknown flag '--nope'\n")


def test_c5_engines_on_one_address_find_each_other(server: MetadataServer) -> None:
    """Eight engines at once, all of them "127.0.0.1": each has a name of its own, and each pair
    writes and reads."""
    count, size = 8, 4096
    engines = [TransferEngine() for _ in range(count)]
    codes: list[int] = []
    threads = [threading.Thread(target=lambda e=engine: codes.append(
        e.initialize("127.0.0.1", server.url, "tcp", ""))) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [0] * count
    names = [f"127.0.0.1:{engine.get_rpc_port()}" for engine in engines]
    assert len(set(names)) == count
    # Row `i` of an engine's memory is written by engine `i`.
    memory = [numpy.zeros((count + 1, size), dtype=numpy.uint8) for _ in engines]
    for one, engine in enumerate(engines):
        memory[one][count] = one + 1
        assert engine.register_memory(memory[one].ctypes.data, memory[one].nbytes) == 0
    for one, engine in enumerate(engines):
        for two in range(count):
            source = memory[one].ctypes.data + count * size
            there = memory[two].ctypes.data
            assert engine.transfer_sync_write(names[two], source, there + one * size, size) == 0
            assert engine.transfer_sync_read(names[two], source, there + one * size, size) == 0
    for rows in memory:
        assert (rows[:count] == numpy.arange(1, count + 1)[:, None]).all()
    keys = call("GET", f"http://{server.address}/metrics")[1]
    assert f"mooncake_metadata_keys {2 * count}".encode() in keys
