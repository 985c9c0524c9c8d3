"""Proves the Python store's calls and codes, against a Master in the process and one of its own:
cases C10 (empty or missing), C27 and C33 (a dead Master), C34 (names that callers use)."""

import array
import os
import subprocess
import sys
import threading
import time
from typing import Any

import numpy
import pytest
from conftest import MasterProcess, free_port
from mooncake.store import MooncakeDistributedStore, ReplicateConfig
from store_rig import INVALID, LEASED, MEBIBYTE, MISSING, Counter, config, opened, timed


def test_a_store_that_is_not_set_up_gives_one_code() -> None:
    store = MooncakeDistributedStore()
    assert store.put("a", b"x") == INVALID
    assert store.get("a") == b""
    assert store.is_exist("a") == INVALID
    assert store.remove("a") == INVALID
    assert store.close() == 0


VALUES = {
    "bytes": b"hello",
    "bytearray": bytearray(b"\0\xff" * 700),
    "memoryview": memoryview(b"0123456789")[2:7],
    "array": array.array("d", [1.5, -2.5]),
    "numpy": numpy.arange(12, dtype=numpy.float32).reshape(3, 4),
    "4 KiB": os.urandom(4096),
    "5 MiB + 3": os.urandom(5 * MEBIBYTE + 3),
}


def test_what_is_put_is_got(store: MooncakeDistributedStore) -> None:
    for key, value in VALUES.items():
        assert store.put(key, value) == 0
        assert store.is_exist(key) == 1
    # Forth and back: values as large as, larger and smaller than the one before.
    for key in [*VALUES, *reversed(VALUES), *VALUES]:
        value = store.get(key)
        assert type(value) is bytes and value == memoryview(VALUES[key]).tobytes()


def test_an_existing_key_keeps_its_value(store: MooncakeDistributedStore) -> None:
    assert store.put("a", b"old") == 0
    assert store.put("a", b"new!") == 0
    assert store.get("a") == b"old"


def test_keys_are_text_or_bytes(store: MooncakeDistributedStore) -> None:
    assert store.put("Schlüssel", b"1") == 0
    assert store.get("Schlüssel".encode()) == b"1"
    assert store.put(b"\xff\0", b"2") == 0
    assert store.get(b"\xff\0") == b"2"
    assert store.is_exist("k" * 4096) == 0
    for bad in ("", b"", "k" * 4097):
        assert store.put(bad, b"x") == INVALID
        assert store.get(bad) == b""
        assert store.is_exist(bad) == INVALID
        assert store.remove(bad) == INVALID
    for wrong in (1, None, bytearray(b"a"), "\ud800"):
        with pytest.raises(TypeError):
            store.get(wrong)


def test_c10_empty_and_missing_differ(store: MooncakeDistributedStore) -> None:
    assert store.put("empty", b"") == INVALID
    assert store.get("empty") == b"" and store.is_exist("empty") == 0
    assert store.get("absent") == b"" and store.is_exist("absent") == 0
    assert store.remove("absent") == MISSING


def test_values_must_be_contiguous_bytes(store: MooncakeDistributedStore) -> None:
    with pytest.raises((BufferError, ValueError)):
        store.put("a", numpy.arange(10)[::2])
    with pytest.raises(BufferError):
        store.put("a", memoryview(b"0123456789")[::2])
    for wrong in ("text", 5, None, [1, 2]):
        with pytest.raises(TypeError):
            store.put("a", wrong)
    assert store.is_exist("a") == 0


def test_a_put_lets_go_of_its_value(store: MooncakeDistributedStore) -> None:
    value = bytearray(b"x" * 100)
    assert store.put("a", value) == 0
    value.extend(b"y")  # raises BufferError while somebody holds the buffer
    assert store.get("a") == b"x" * 100


def test_remove_respects_leases_unless_forced(store: MooncakeDistributedStore) -> None:
    assert store.put("a", b"x") == 0
    assert store.remove("a") == 0
    assert store.remove("a") == MISSING
    assert store.put("a", b"y") == 0
    assert store.get("a") == b"y"
    assert store.remove("a") == LEASED
    assert store.remove("a", force=True) == 0
    assert store.is_exist("a") == 0


def test_replicate_config(store: MooncakeDistributedStore) -> None:
    two = ReplicateConfig()
    assert two.replica_num == 1 and "replica_num=1" in str(two)
    two.replica_num = numpy.int64(2)
    assert two.replica_num == 2
    assert store.put("a", b"x", two) == 0  # fewer where there is one segment
    assert store.put("b", b"x", config=None) == 0
    assert store.put(key="c", value=b"x", config=ReplicateConfig()) == 0
    with pytest.raises(TypeError):
        store.put("d", b"x", 2)


def test_close_and_set_up_again(store: MooncakeDistributedStore) -> None:
    assert store.setup(config("embedded")) == INVALID  # it is set up
    assert store.put("a", b"x") == 0
    assert store.close() == 0
    assert store.close() == 0
    assert store.put("a", b"x") == INVALID and store.get("a") == b""
    assert store.setup(config("embedded")) == 0
    assert store.get("a") == b""
    assert store.put("a", b"y") == 0


def test_the_published_positional_form() -> None:
    store = MooncakeDistributedStore()
    sizes = (numpy.int64(16 * MEBIBYTE), 16 * MEBIBYTE)
    assert store.setup("localhost", "P2PHANDSHAKE", *sizes, "tcp", "", "embedded") == 0
    assert store.close() == 0
    assert store.setup(
        local_hostname="127.0.0.1:0", metadata_server="P2PHANDSHAKE", global_segment_size=MEBIBYTE,
        local_buffer_size=0, protocol="tcp", rdma_devices="", master_server_addr="embedded",
        engine=None, enable_ssd_offload=False, ssd_offload_path="", tenant_id="default",
        enable_client_http_server=False, client_http_port=9300) == 0
    assert store.put("a", b"x") == 0 and store.get("a") == b"x"
    assert store.close() == 0
    with pytest.raises(TypeError, match="frobnicate"):
        store.setup("localhost", "P2PHANDSHAKE", *sizes, "tcp", "", "embedded", frobnicate=1)


@pytest.mark.parametrize("field, value", [
    ("local_hostname", ""), ("local_hostname", "no host"), ("metadata_server", ""),
    ("metadata_server", "etcd://127.0.0.1:2379"), ("global_segment_size", "50%"),
    ("global_segment_size", "-1"), ("global_segment_size", 1000), ("local_buffer_size", "2TB"),
    ("local_buffer_size", 7), ("protocol", "carrier_pigeon"), ("protocol", "nvlink"),
    ("master_server_addr", "etcd://127.0.0.1:2379"), ("master_server_addr", "127.0.0.1:70000"),
    ("ipc_socket_path", "@mooncake"), ("enable_ssd_offload", True),
    ("enable_ssd_offload", "perhaps"), ("tenant_id", "somebody"),
    ("enable_client_http_server", "on"), ("client_http_port", 0),
    ("timeout", "soon"), ("master_server_address", "127.0.0.1:1")])
def test_c34_a_wrong_setting_fails_at_once_and_is_named(
        field: str, value: Any, capfd: pytest.CaptureFixture[str]) -> None:
    store = MooncakeDistributedStore()
    code, seconds = timed(lambda: store.setup(config("embedded", **{field: value})))
    assert code == INVALID and seconds < 1
    said = capfd.readouterr().err
    assert field in said and said.count("\n") == 1, said
    assert store.put("a", b"x") == INVALID


@pytest.mark.parametrize("name, value", [
    ("engine", object()), ("enable_ssd_offload", True), ("tenant_id", "somebody"),
    ("enable_client_http_server", numpy.bool_(True)), ("global_segment_size", -1)])
def test_what_is_not_served_is_refused_by_position_too(
        name: str, value: Any, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = {"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE",
                 "global_segment_size": MEBIBYTE, "local_buffer_size": MEBIBYTE, "protocol": "tcp",
                 "rdma_devices": "", "master_server_addr": "embedded", **{name: value}}
    assert MooncakeDistributedStore().setup(**arguments) == INVALID
    assert name in capfd.readouterr().err


@pytest.mark.parametrize("required", ["local_hostname", "metadata_server"])
def test_required_settings(required: str, capfd: pytest.CaptureFixture[str]) -> None:
    settings = config("embedded")
    del settings[required]
    assert MooncakeDistributedStore().setup(settings) == INVALID
    assert required in capfd.readouterr().err


def test_c34_names_and_sizes_of_callers(
        live_master: MasterProcess, capfd: pytest.CaptureFixture[str]) -> None:
    store = MooncakeDistributedStore()
    assert store.setup({
        "local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE",
        "global_segment_size": "16 MB", "local_buffer_size": "4096", "protocol": "rdma",
        "device_name": "", "master_server_address": live_master.address, "tenant_id": "default",
        "enable_ssd_offload": "false", "engine": None, "colour": "blue", "shape": "round"}) == 0
    said = capfd.readouterr().err
    assert store.put("a", b"x") == 0 and store.get("a") == b"x"
    assert store.close() == 0
    unknown = [line for line in said.splitlines() if "colour" in line or "shape" in line]
    assert len(unknown) == 1 and "colour" in unknown[0] and "shape" in unknown[0], said
    assert len([line for line in said.splitlines() if "rdma" in line]) == 1, said


def test_the_secret_is_an_argument_or_in_the_environment(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOONCAKE_CLUSTER_SECRET", "swordfish")
    store = opened("embedded")
    assert store.put("a", b"x") == 0 and store.get("a") == b"x"
    store.close()
    store = opened("embedded", cluster_secret="herring")
    assert store.put("a", b"x") == 0
    store.close()


def test_sixteen_threads(store: MooncakeDistributedStore) -> None:
    wrong: list[str] = []

    def work(thread: int) -> None:
        for i in range(50):
            value = bytes([thread, i]) * (1 + 997 * (i % 7))
            if store.put(f"{thread}/{i}", value) != 0 or store.get(f"{thread}/{i}") != value:
                wrong.append(f"{thread}/{i}")
            store.put("shared", b"the same for all")
            if store.get("shared") != b"the same for all":
                wrong.append("shared")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_close_while_others_call(store: MooncakeDistributedStore) -> None:
    value = os.urandom(MEBIBYTE)
    codes: set[int] = set()
    started = threading.Barrier(5)

    def work(thread: int) -> None:
        started.wait()
        code, i = 0, 0
        while code == 0:
            code = store.put(f"{thread}/{i % 8}", value)
            assert store.get(f"{thread}/{i % 8}") in (value, b"")
            i += 1
        codes.add(code)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    started.wait()
    _, seconds = timed(store.close)
    for thread in threads:
        thread.join()
    assert seconds < 2 and max(codes) < 0


def test_setup_without_a_master_ends_and_lets_others_run(
        capfd: pytest.CaptureFixture[str]) -> None:
    address = f"127.0.0.1:{free_port()}"
    with Counter() as counter:
        store = MooncakeDistributedStore()
        code, seconds = timed(lambda: store.setup(config(address, timeout="1s")))
        counted = counter.count
    assert code in (-900, -901) and seconds < 2.5
    assert counted > 50
    assert address in capfd.readouterr().err


READER = """
import sys
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
assert store.setup({"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE",
                    "global_segment_size": 0, "master_server_addr": sys.argv[1]}) == 0
value = store.get("from the test")
assert len(value) == 3 << 20 and value.count(b"q") == len(value), len(value)
assert store.put("from the child", b"c" * 4096) == 0  # into the test's segment: the child has none
store.close()
"""


def test_two_processes_share_objects(live_master: MasterProcess) -> None:
    store = opened(live_master.address)
    assert store.put("from the test", b"q" * (3 << 20)) == 0
    done = subprocess.run([sys.executable, "-c", READER, live_master.address], timeout=60)
    assert done.returncode == 0
    assert store.get("from the child") == b"c" * 4096
    assert store.close() == 0


def test_c27_close_with_a_dead_master(live_master: MasterProcess) -> None:
    store = opened(live_master.address)
    assert store.put("a", b"x") == 0
    live_master.kill()
    with Counter() as counter:
        code, seconds = timed(store.close)
        if seconds > 0.5:
            assert counter.count > 50
    assert code == 0 and seconds < 2


def test_health_tells_of_a_dead_master(live_master: MasterProcess) -> None:
    store = opened(live_master.address, timeout="1s")

    def wait_for(health: int) -> None:
        until = time.monotonic() + 90
        while store.health_check() != health:
            assert time.monotonic() < until

    wait_for(0)
    with live_master.stopped():
        wait_for(2)
    wait_for(0)
    live_master.kill()
    wait_for(2)
    store.close()
    assert store.health_check() == 1


def test_c33_a_dead_master_is_a_miss(live_master: MasterProcess) -> None:
    store = opened(live_master.address, timeout="1s")
    assert store.put("a", b"x") == 0
    live_master.kill()
    for call, answers in [(lambda: store.is_exist("a"), (0,)), (lambda: store.get("a"), (b"",)),
                          (lambda: store.batch_is_exist(["a", "b"]), ([0, 0],)),
                          (lambda: store.get_batch(["a", "b"]), ([b"", b""],)),
                          (lambda: store.get_buffer("a"), (None,)),
                          (lambda: store.get_size("a"), (-900, -901)),
                          (lambda: store.upsert("a", b"y"), (-900, -901)),
                          (lambda: store.put("b", b"x"), (-900, -901)),
                          (lambda: store.remove("a"), (-900, -901))]:
        with Counter() as counter:
            answer, seconds = timed(call)
            if seconds > 0.5:
                assert counter.count > 50
        assert answer in answers and seconds < 1.5
    assert store.close() == 0
