"""Proves what an operator meets: cases C24 (typos) and C30 (two Masters on one host), help, health, metrics.

Each test starts the real mooncake_master and reads its exit status and its words.
"""

import json
import os
import signal
import socket
import subprocess
import urllib.request

import pytest

BIN = os.environ.get("MOONCAKE_BIN_DIR", "")
MASTER = os.path.join(BIN, "mooncake_master")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(*flags: str) -> subprocess.Popen:
    return subprocess.Popen(
        [MASTER, "-rpc_address=127.0.0.1", "-metrics_host=127.0.0.1", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def refused(*flags: str) -> str:
    """Runs a Master that must refuse to start; returns what it said."""
    process = start(*flags)
    try:
        out, err = process.communicate(timeout=20)
    finally:
        if process.poll() is None:
            process.kill()
    assert process.returncode != 0, out
    assert "ready" not in out
    return err


@pytest.fixture
def master():
    rpc, http = free_port(), free_port()
    process = start(f"-rpc_port={rpc}", f"-metrics_port={http}", "-log_level=warning")
    try:
        line = process.stdout.readline()
        assert line == f"mooncake_master ready rpc=127.0.0.1:{rpc} http=127.0.0.1:{http}\n", (
            process.stderr.read() if process.poll() is not None else line
        )
        yield process, rpc, http
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


@pytest.mark.parametrize(
    "flags, words",
    [
        (["-rpc_prot=1"], ["rpc_prot", "rpc_port"]),
        (["-metrics_port=0"], ["metrics_port", "0", "65535"]),
        (["-port=0"], ["port", "0", "65535"]),
        (["-rpc_port=70000"], ["rpc_port", "70000", "65535"]),
        (["-rpc_port=abc"], ["rpc_port", "abc"]),
        (["-eviction_ratio=1.5"], ["eviction_ratio", "1.5"]),
        (["-client_ttl=soon"], ["client_ttl", "soon"]),
        (["-log_level=loud"], ["log_level", "loud", "warning"]),
        (["-rpc_port=5000", "-metrics_port=5000"], ["rpc_port", "metrics_port", "5000"]),
        (["-config_path=/nonexistent.yaml"], ["config_path", "/nonexistent.yaml"]),
        (["-rpc_port=5000", "-rpc_address=not a host", "-metrics_port=5001"], ["rpc_port", "not a host"]),
    ],
)
def test_c24_a_typo_is_refused_and_named(flags, words):
    err = refused(*flags)
    for word in words:
        assert word in err, err


def test_c30_the_second_master_says_which_port_is_taken(master):
    _, rpc, http = master
    err = refused(f"-rpc_port={free_port()}", f"-metrics_port={http}")
    assert str(http) in err and "-metrics_port" in err
    err = refused(f"-rpc_port={rpc}", f"-metrics_port={free_port()}")
    assert str(rpc) in err and "-rpc_port" in err


def test_health_and_metrics(master):
    _, _, http = master
    with urllib.request.urlopen(f"http://127.0.0.1:{http}/health", timeout=5) as reply:
        health = json.load(reply)
    assert health["status"] == "ok" and health["service_ready"] is True
    with urllib.request.urlopen(f"http://127.0.0.1:{http}/metrics", timeout=5) as reply:
        text = reply.read().decode()
    for name in ("master_key_count", "master_allocated_bytes", "master_total_capacity_bytes", "master_active_clients"):
        assert f"\n{name} 0" in text, name


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ends_cleanly_on_a_signal(master, number):
    process, _, _ = master
    process.send_signal(number)
    assert process.wait(timeout=10) == 0


@pytest.mark.parametrize("flag, words", [("--help", ["metrics_port", "9003"]), ("--version", ["mooncake_master"])])
def test_help_and_version(flag, words):
    done = subprocess.run([MASTER, flag], capture_output=True, text=True, timeout=20)
    assert done.returncode == 0
    for word in words:
        assert word in done.stdout


def test_config_file_is_below_flags(tmp_path):
    rpc, http = free_port(), free_port()
    config = tmp_path / "master.yaml"
    config.write_text(f"rpc_port: 1\nmetrics_port: {http}\nclient_live_ttl_sec: 7\n")
    process = start(f"-config_path={config}", f"-rpc_port={rpc}")
    try:
        assert f"rpc=127.0.0.1:{rpc} http=127.0.0.1:{http}" in process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


def test_garbage_on_the_port_is_refused_and_counted(master):
    process, rpc, http = master
    request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nUser-Agent: somebody else\r\n\r\n"
    # The last one is less than a frame: closed, but not counted as malformed.
    for garbage in (request, b"\x00" * 200, os.urandom(4096), b"MCF1"):
        with socket.create_connection(("127.0.0.1", rpc), timeout=10) as s:
            s.sendall(garbage)
            s.shutdown(socket.SHUT_WR)
            s.settimeout(10)
            try:
                while s.recv(4096):
                    pass
            except ConnectionError:
                pass
    with urllib.request.urlopen(f"http://127.0.0.1:{http}/metrics", timeout=5) as reply:
        text = reply.read().decode()
    counted = sum(
        float(line.split()[-1])
        for line in text.splitlines()
        if line.startswith("master_refused_connections_total")
    )
    assert counted >= 3, text
    assert process.poll() is None
