"""Proves that mooncake_client gives memory that others put into and get from, says how it is over HTTP, takes every flag
of the published program at its default, refuses what it does not serve, and ends within three seconds, whatever the
Master does. Case C24 (typos)."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from conftest import MasterProcess, free_port
from mooncake.store import MooncakeDistributedStore
from store_rig import MEBIBYTE, opened, random_bytes

CLIENT = os.path.join(os.environ.get("MOONCAKE_BIN_DIR", ""), "mooncake_client")
SURFACE = pathlib.Path(__file__).parent.parent / "compat" / "surface.json"
PUBLISHED = json.loads(SURFACE.read_text())["programs"]["mooncake_client"]


def start(*flags: str, program: "list[str] | None" = None) -> "subprocess.Popen[str]":
    return subprocess.Popen([*(program or [CLIENT]), "-log_level=warning", *flags],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(process: "subprocess.Popen[str]") -> str:
    """What it has said on stderr."""
    if process.poll() is None:
        process.kill()
    return process.communicate()[1]


def usual(master: str) -> list[str]:
    return ["-host=127.0.0.1", "-metadata_server=P2PHANDSHAKE", f"-master_server_address={master}",
            "-global_segment_size=64MB"]


class Client:
    def __init__(self, master: str) -> None:
        self.http = free_port()
        self.process = start(*usual(master), "-enable_http_server", f"-http_port={self.http}")
        line = self.process.stdout.readline()
        found = re.match(r"mooncake_client ready name=(127\.0\.0\.1:\d+) http=127\.0\.0\.1:\d+\n$", line)
        assert found, line + end(self.process)
        self.name = found[1]

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", timeout=10) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture
def client(live_master: MasterProcess) -> Iterator[Client]:
    client = Client(live_master.address)
    yield client
    end(client.process)


def without_memory(master: str) -> MooncakeDistributedStore:
    return opened(master, global_segment_size=0)


def test_its_memory_serves_others(live_master: MasterProcess, client: Client) -> None:
    store = without_memory(live_master.address)
    values = {f"key/{i}": random_bytes(1 + i * 40000) for i in range(20)}
    for key, value in values.items():
        assert store.put(key, value) == 0
    for key, value in values.items():
        assert store.get(key) == value
    place = store.get_replica_desc("key/7")[0].get_memory_descriptor().buffer_descriptor
    assert place.transport_endpoint == client.name
    begin = time.monotonic()
    client.process.send_signal(signal.SIGTERM)
    assert client.process.wait(timeout=10) == 0
    assert time.monotonic() - begin < 3
    # It has given its segment back by itself: nobody had to wait for its silence.
    why = store.why("key/7")
    assert why["reason"] == "lost" and why["events"][0]["event"] == "owner_left"
    assert store.get("key/7") == b""
    store.close()


def test_pages(live_master: MasterProcess, client: Client) -> None:
    assert client.get("/health") == (200, '{"code":0,"status":"healthy"}\n')
    status, text = client.get("/metrics")
    assert status == 200 and "\nmooncake_client_mounts_total 1\n" in text
    status, text = client.get("/metrics/summary")
    assert status == 200 and text.count("\n") == 1 and "Mounts: 1" in text
    assert client.get("/other")[0] == 404
    live_master.kill()
    deadline = time.monotonic() + 30
    while client.get("/health")[0] == 200:
        assert time.monotonic() < deadline
    assert client.get("/health") == (503, '{"code":2,"status":"master_unreachable"}\n')
    begin = time.monotonic()
    client.process.send_signal(signal.SIGINT)
    assert client.process.wait(timeout=10) == 0
    assert time.monotonic() - begin < 3


def test_a_signal_ends_it_while_it_looks_for_its_master() -> None:
    process = start(*usual(f"127.0.0.1:{free_port()}"))
    try:
        # Its sockets are there before it asks the Master.
        deadline = time.monotonic() + 20
        while not [name for name in os.listdir(f"/proc/{process.pid}/task") if name != str(process.pid)]:
            assert time.monotonic() < deadline and process.poll() is None
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0
        assert time.monotonic() - begin < 3
    finally:
        end(process)


def test_a_master_that_is_not_there_is_named() -> None:
    address = f"127.0.0.1:{free_port()}"
    process = start(*usual(address))
    out, err = process.communicate(timeout=30)
    assert process.returncode == 1 and address in err and "ready" not in out


def test_every_flag_of_the_published_program_is_taken_at_its_default(live_master: MasterProcess) -> None:
    ours = {"host", "metadata_server", "master_server_address", "global_segment_size"}
    flags = [f"-{name}={flag['default']}" for name, flag in PUBLISHED.items() if name not in ours]
    process = start(*flags, *usual(live_master.address))
    try:
        assert "ready" in process.stdout.readline(), end(process)
    finally:
        said = end(process)
    for name in ("port", "threads", "local_buffer_size", "start_offload_rpc_server", "mmap_arena_pool_size"):
        assert said.count(f" {name}: accepted and ignored") == 1, said
    assert "enable_offload" not in said and "tenant_id" not in said


def test_names_and_defaults_are_those_of_the_published_program() -> None:
    done = subprocess.run([CLIENT, "--help"], capture_output=True, text=True, timeout=20)
    assert done.returncode == 0
    served = dict(re.findall(r"^  --(\w+)  .*, default '?(.*?)'?$", done.stdout, re.MULTILINE))
    for name in ("host", "metadata_server", "master_server_address", "protocol", "enable_http_server", "http_port"):
        assert served[name] == PUBLISHED[name]["default"], served
    # The published help cuts "4 GB" at its blank.
    assert served["global_segment_size"].split()[0] == PUBLISHED["global_segment_size"]["default"]


@pytest.mark.parametrize("flags, words", [
    (["-enable_offload"], ["enable_offload", "not served"]),
    (["-tenant_id=somebody"], ["tenant_id", "not served"]),
    (["-hots=a"], ["hots", "host"]), (["-http_port=0"], ["http_port", "65535"]),
    (["-global_segment_size=50%"], ["global_segment_size"]), (["-global_segment_size=0"], ["global_segment_size"]),
    (["-protocol=pigeon"], ["protocol", "pigeon"]), (["-protocol=nvlink"], ["protocol", "nvlink"]),
    (["-metadata_server=etcd://a"], ["metadata_server", "P2PHANDSHAKE"]),
    (["-master_server_address=etcd://a;b"], ["master_server_address"]),
    (["-master_server_address=embedded"], ["master_server_address", "embedded"]),
    (["-master_server_address=127.0.0.1:0"], ["master_server_address", "port 0"]),
    (["-host="], ["host"])])
def test_c24_a_wrong_flag_is_refused_and_named(flags: list[str], words: list[str]) -> None:
    done = subprocess.run([CLIENT, *flags], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2 and "ready" not in done.stdout, done
    for word in words:
        assert word in done.stderr, done.stderr


def test_without_a_host_it_takes_the_one_that_leads_to_the_master(live_master: MasterProcess) -> None:
    process = start("-metadata_server=P2PHANDSHAKE", f"-master_server_address={live_master.address}",
                    "-global_segment_size=1MB")
    try:
        line = process.stdout.readline()
        assert line.startswith("mooncake_client ready name=127.0.0.1:"), line
    finally:
        end(process)


def test_the_console_script_becomes_the_program() -> None:
    done = subprocess.run([sys.executable, "-c", "from mooncake import cli_client; cli_client.main()", "--version"],
                          capture_output=True, text=True, timeout=30)
    assert done.returncode == 0 and done.stdout.startswith("mooncake_client "), done


def test_it_is_one_of_several(live_master: MasterProcess, client: Client) -> None:
    other = Client(live_master.address)
    try:
        store = without_memory(live_master.address)
        for i in range(100):  # more than one of them holds
            assert store.put(f"key/{i}", bytes([i]) * MEBIBYTE) == 0
        names = {r.get_memory_descriptor().buffer_descriptor.transport_endpoint
                 for i in range(100) for r in store.get_replica_desc(f"key/{i}")}
        assert names == {client.name, other.name}
        store.close()
    finally:
        end(other.process)
