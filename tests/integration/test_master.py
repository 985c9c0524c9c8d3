"""Proves what an operator meets: cases C24 (typos, in flags and files alike) and C30 (two Masters on one host), every
flag of the published program, help, health, metrics, a disk that takes no file.

Each test starts the real mooncake_master and reads its exit status and its words.
"""

import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import urllib.request

import pytest

BIN = os.environ.get("MOONCAKE_BIN_DIR", "")
MASTER = os.path.join(BIN, "mooncake_master")
SURFACE = pathlib.Path(__file__).parent.parent / "compat" / "surface.json"


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(*flags: str, **options) -> subprocess.Popen:
    return subprocess.Popen(
        [MASTER, "-rpc_address=127.0.0.1", "-metrics_host=127.0.0.1", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def refused(*flags: str, status: int = 2, **options) -> str:
    """Runs a Master that must refuse to start; returns what it said."""
    process = start(*flags, **options)
    try:
        out, err = process.communicate(timeout=20)
    finally:
        if process.poll() is None:
            process.kill()
    assert process.returncode == status, out + err
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
        (["-http_metadata_server_port=0"], ["http_metadata_server_port", "0", "65535"]),
        (["-rpc_port=5000", "-rpc_address=not a host", "-metrics_port=5001"], ["rpc_address", "not a host"]),
        (["-rpc_address="], ["rpc_address", "''"]),
        (["-metrics_host=[::1"], ["metrics_host", "[::1"]),
        (["-put_start_release_timeout_sec=5"], ["put_start_release_timeout_sec", "put_start_discard_timeout_sec"]),
        (["-enable_ha"], ["enable_ha", "true", "not served"]),
        (["-quota_bytes=1gb"], ["quota_bytes", "1gb", "not served"]),
    ],
)
def test_c24_a_typo_is_refused_and_named(flags, words):
    err = refused(*flags)
    for word in words:
        assert word in err, err


@pytest.mark.parametrize(
    "name, text, words",
    [
        ("m.yaml", "enable_ha: true\n", ["enable_ha", "true", "not served"]),
        ("m.yaml", "enable_oplog: on\n", ["enable_oplog", "not served"]),
        ("m.json", '{"enable_offload": true}', ["enable_offload", "not served"]),
        ("m.json", '{"enable_multi_tenants": true}', ["enable_multi_tenants", "not served"]),
        ("m.yaml", "rpc_prot: 1\n", ["rpc_prot", "rpc_port"]),
        ("m.json", '{"client_live_ttl": 7}', ["client_live_ttl", "client_live_ttl_sec"]),
        ("m.yaml", "metrics_port:\n", ["metrics_port", "no value"]),
        ("m.json", '{"metrics_port": null}', ["metrics_port", "no value"]),
        ("m.yaml", "metrics_port: 0\n", ["metrics_port", "0", "65535"]),
        ("m.json", '{"rpc_address": ""}', ["rpc_address", "''"]),
        ("m.json", '{"rpc_port": [1]}', ["rpc_port"]),
    ],
)
def test_c24_the_same_in_a_file_names_the_key(tmp_path, name, text, words):
    config = tmp_path / name
    config.write_text(text)
    # No flag of its own: flags would win over the file.
    done = subprocess.run([MASTER, f"-config_path={config}"], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2 and "ready" not in done.stdout, done.stdout
    for word in [*words, name]:
        assert word in done.stderr, done.stderr


def test_every_flag_of_the_published_program_is_taken_at_its_default():
    published = json.loads(SURFACE.read_text())["programs"]["mooncake_master"]
    ours = {"rpc_address", "rpc_port", "port", "metrics_host", "metrics_port"}
    rpc, http = free_port(), free_port()
    flags = [f"-{name}={flag['default']}" for name, flag in published.items() if name not in ours]
    process = start(*flags, f"-rpc_port={rpc}", f"-metrics_port={http}")
    try:
        assert "ready" in process.stdout.readline(), process.communicate()[1]
    finally:
        process.kill()
        _, err = process.communicate()
    assert len(published) > 90 and ours < set(published)
    # Each one that has no effect says so once.
    for name in ("max_threads", "memory_allocator", "snapshot_interval_seconds"):
        assert err.count(f" {name}: accepted and ignored") == 1, err
    assert "enable_ha" not in err and "eviction_ratio: accepted" not in err.replace("nof_eviction_ratio", "")


def test_defaults_are_those_of_the_published_program():
    published = json.loads(SURFACE.read_text())["programs"]["mooncake_master"]
    text = subprocess.run([MASTER, "--help"], capture_output=True, text=True, timeout=20).stdout
    served = dict(re.findall(r"^  --(\w+)  .*, default (\S+)$", text, re.MULTILINE))
    for name, default in served.items():
        if name not in published:
            continue
        wanted = published[name]["default"]
        assert default.strip("'") == wanted or float(default) == float(wanted), name
    assert len(served) >= 15


def test_a_disk_that_takes_no_file_is_an_error_that_names_it(tmp_path):
    def no_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    err = refused(
        f"-rpc_port={free_port()}",
        f"-metrics_port={free_port()}",
        f"-state_dir={tmp_path}",
        status=1,
        preexec_fn=no_files,
    )
    assert str(tmp_path / "epoch") in err and "File too large" in err, err
    assert list(tmp_path.iterdir()) == []


def test_c30_the_second_master_says_which_port_is_taken(master):
    _, rpc, http = master
    err = refused(f"-rpc_port={free_port()}", f"-metrics_port={http}", status=1)
    assert str(http) in err and "-metrics_port" in err
    err = refused(f"-rpc_port={rpc}", f"-metrics_port={free_port()}", status=1)
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
