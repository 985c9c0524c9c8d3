"""Proves what the Master says over HTTP: each route of its published face, with the published names; that hostile
questions are refused; that a list of very many keys is whole, comes in pieces and holds up nobody; and that nobody
asks about keys of a secured cluster, or removes them, without its secret."""

import json
import os
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import free_port
from store_rig import opened, random_bytes


class Master:
    """A Master with a port for HTTP, and a store beside it."""

    def __init__(self, *flags: str) -> None:
        rpc, self.http = free_port(), free_port()
        self.address = f"127.0.0.1:{rpc}"
        program = os.path.join(os.environ["MOONCAKE_BIN_DIR"], "mooncake_master")
        self.process = subprocess.Popen(
            [program, "-rpc_address=127.0.0.1", f"-rpc_port={rpc}", "-metrics_host=127.0.0.1",
             f"-metrics_port={self.http}", "-log_level=error", *flags],
            stdout=subprocess.PIPE, text=True)
        assert "ready" in self.process.stdout.readline()

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.http}{path}", method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=20) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def json(self, path: str, method: str = "GET", **headers: str) -> tuple[int, Any]:
        status, text = self.ask(path, method, **headers)
        return status, json.loads(text)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def master() -> Iterator[Master]:
    master = Master()
    yield master
    master.end()


@pytest.fixture
def store(master: Master) -> Iterator[Any]:
    store = opened(master.address)
    yield store
    store.close()


def quoted(text: "str | bytes") -> str:
    return urllib.parse.quote(text, safe="")


def test_who_it_is(master: Master) -> None:
    assert master.ask("/role") == (200, "leader\n") and master.ask("/ha_status") == (200, "serving\n")
    status, leader = master.json("/leader")
    assert status == 200 and leader["present"] is True and leader["leader_address"] == master.address
    assert leader["view_version"] == master.json("/health")[1]["view_version"] > 0


def test_summary_is_one_line(master: Master, store: Any) -> None:
    assert store.put("k", random_bytes(5000)) == 0
    status, text = master.ask("/metrics/summary")
    assert status == 200 and text.count("\n") == 1 and text.endswith("\n")
    assert "of 64 MiB" in text and "Keys: 1 " in text and "Clients: 1" in text


def test_query_key_gives_places_and_takes_a_lease(master: Master, store: Any) -> None:
    assert store.put("a/b c", b"12345") == 0
    status, answer = master.json("/query_key?key=" + quoted("a/b c"))
    place = store.get_replica_desc("a/b c")[0].get_memory_descriptor().buffer_descriptor
    assert status == 200 and answer == {"success": True, "data": [
        {"size_": 5, "buffer_address_": place.buffer_address, "protocol_": "tcp",
         "transport_endpoint_": store.get_hostname()}]}
    assert store.put("leased", b"x") == 0 and store.put("peeked", b"x") == 0
    master.ask("/query_key?key=leased")
    master.ask("/batch_query_keys?keys=peeked")
    assert store.remove("leased") == -706 and store.remove("peeked") == 0
    status, answer = master.json("/query_key?key=absent")
    assert status == 404 and answer["success"] is False and answer["error_code"] == -704


def test_batch_query_keys(master: Master, store: Any) -> None:
    assert store.put("a", b"12345") == 0 and store.put("b", b"1") == 0
    status, answer = master.json("/batch_query_keys?keys=a,,absent,b")
    assert status == 200 and answer["success"] is True
    assert answer["data"].keys() == {"a", "b", "absent"}
    assert answer["data"]["a"]["ok"] is True and answer["data"]["a"]["values"][0]["size_"] == 5
    assert answer["data"]["absent"]["ok"] is False and answer["data"]["absent"]["error"]


def test_segments(master: Master, store: Any) -> None:
    assert store.put("k", random_bytes(4096)) == 0
    other = opened(master.address)
    names = sorted([store.get_hostname(), other.get_hostname()])
    assert master.ask("/get_all_segments") == (200, "".join(name + "\n" for name in names))
    status, detail = master.json("/get_segments_detail")
    assert status == 200 and detail["total_segments"] == 2
    ours = next(s for s in detail["segments"] if s["segment_name"] == store.get_hostname())
    assert set(ours) == {
        "segment_name", "segment_id", "client_id", "base_address", "size_bytes", "size_human",
        "te_endpoint", "protocol", "status", "allocator_used_bytes", "allocator_capacity_bytes",
        "allocator_usage_percent"}
    assert ours["size_bytes"] == 64 << 20 and ours["size_human"] == "64 MiB"
    assert ours["base_address"].startswith("0x") and ours["status"] == "OK"
    high, _, low = ours["segment_id"].partition("-")
    assert int(high) and int(low)
    used = sum(s["allocator_used_bytes"] for s in detail["segments"])
    assert used == 4096
    for name in names:
        status, text = master.ask("/query_segment?segment=" + quoted(name))
        lines = text.splitlines()
        assert status == 200 and lines[0] == name and lines[2] == f"Capacity(bytes) : {64 << 20}"
        assert lines[1] in ("Used(bytes): 0", "Used(bytes): 4096")
    assert master.ask("/query_segment?segment=nobody")[0] == 500
    status, answer = master.json("/api/v1/segments/status?segment=" + quoted(names[0]))
    assert status == 200 and answer["status"] == 1 and answer["status_name"] == "OK"
    assert master.json("/api/v1/segments/status?segment=nobody")[0] == 404
    other.close()


def test_why(master: Master, store: Any) -> None:
    assert store.put("k", b"x") == 0 and store.remove("k") == 0
    status, answer = master.json("/why?key=k")
    ours = store.why("k")
    assert status == 200 and answer["reason"] == "removed" and answer.keys() == ours.keys() - {"code"}
    assert [e["event"] for e in answer["events"]] == ["removed", "published"]
    assert master.json("/why?key=" + quoted(b"\xff\n"))[1]["reason"] == "never_stored"


def chunks(stream: Any) -> Iterator[bytes]:
    """The pieces of an answer, as they are cut on the wire."""
    while b"\r\n" != stream.readline() != b"":
        pass
    while size := int(stream.readline(), 16):
        yield stream.read(size + 2)[:-2]


def test_a_list_of_many_keys_is_whole_and_holds_up_nobody(master: Master, store: Any) -> None:
    keys = [f"model/layer/block-{i:06}" for i in range(14000)]  # nothing is evicted yet
    for first in range(0, len(keys), 3500):
        some = keys[first:first + 3500]
        assert store.put_batch(some, [b"x"] * len(some)) == 0
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", master.http))
        slow.sendall(b"GET /get_all_keys HTTP/1.1\r\n\r\n")
        with slow.makefile("rb") as stream:
            pieces = chunks(stream)
            listed = [next(pieces)]
            # One that does not read on keeps nobody waiting.
            assert store.batch_is_exist(keys) == [1] * len(keys)
            assert master.ask("/role")[0] == 200
            listed += pieces
    assert sorted(b"".join(listed).decode().splitlines()) == keys
    assert max(map(len, listed)) <= 256 * (len(keys[0]) + 1)


@pytest.mark.parametrize("path, status", [
    ("/query_key", 400), ("/query_key?key=", 400), ("/query_key?key=" + "k" * 4097, 400),
    ("/why", 400), ("/why?key=" + "k" * 5000, 400), ("/batch_query_keys", 400),
    ("/batch_query_keys?keys=,,,", 400), ("/batch_query_keys?keys=" + "a," * 5000, 400),
    ("/query_key?key=%zz", 400), ("/query_segment", 500), ("/query_segment?segment=%00%ff", 500),
    ("/get_all_keys?tenant=x", 200), ("/nothing", 404), ("/why?key=" + "%ff" * 4096, 200),
    ("/why?key=" + "a" * 20000, 431)])
def test_hostile_questions(master: Master, path: str, status: int) -> None:
    assert master.ask(path)[0] == status
    assert master.json("/health")[0] == 200


def test_what_is_not_built_says_so(master: Master) -> None:
    for method in ("GET", "PUT", "DELETE"):
        status, answer = master.json("/api/v1/tenant_quotas", method)
        assert status == 409 and answer["error_code"] == -1011 and answer["success"] is False
    status, answer = master.json("/api/v1/drain_jobs", "POST")
    assert status == 500 and answer["error_code"] == -1012
    assert master.json("/kv_events/status")[1]["enabled"] is False


def test_remove_all(master: Master, store: Any) -> None:
    for key in ("a", "b", "leased"):
        assert store.put(key, b"x") == 0
    assert store.get("leased") == b"x"
    assert master.ask("/api/v1/remove_all")[0] == 405
    assert master.json("/api/v1/remove_all?force=maybe", "POST")[0] == 400
    assert master.json("/api/v1/remove_all?tenant_id=other", "POST")[0] == 409
    assert store.batch_is_exist(["leased"]) == [1]
    assert master.json("/api/v1/remove_all", "POST") == (200, {"success": True, "removed_count": 2})
    assert master.json("/api/v1/remove_all?force=true", "POST") == (
        200, {"success": True, "removed_count": 1})
    assert master.json("/why?key=a")[1]["events"][0]["event"] == "removed_with_all"


def test_who_asks_a_secured_cluster_about_keys_shows_its_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOONCAKE_CLUSTER_SECRET", "swordfish")
    master = Master()
    try:
        store = opened(master.address)
        assert store.put("k", b"x") == 0
        for headers in ({}, {"Authorization": "Bearer herring"}, {"Authorization": "Basic swordfish"}):
            status, answer = master.json("/api/v1/remove_all?force=1", "POST", **headers)
            assert status == 401 and answer["success"] is False and "Bearer" in answer["error_message"]
            assert "swordfish" not in answer["error_message"]
        assert store.is_exist("k") == 1
        for page in ("/get_all_keys", "/query_key?key=k", "/batch_query_keys?keys=k", "/why?key=k"):
            assert master.ask(page)[0] == 401, page
            assert master.ask(page, Authorization="Bearer swordfish")[0] == 200, page
        status, answer = master.json(
            "/api/v1/remove_all?force=1", "POST", Authorization="Bearer swordfish")
        assert status == 200 and answer["removed_count"] == 1
        for page in ("/metrics", "/health", "/get_all_segments"):
            assert master.ask(page)[0] == 200, page
        store.close()
    finally:
        master.end()


def test_an_interface_gives_the_address() -> None:
    master = Master("-rpc_interface=lo", "-rpc_address=10.255.255.1")
    try:
        assert master.json("/leader")[1]["leader_address"] == master.address
    finally:
        master.end()
