"""Proves what calls of the Python store are told about replicas and pins, MooncakeConfig, and the
names of mooncake.store that are no calls. Cases C9 (the same size on every surface, or an error that
names it) and C35 (a config is copied by the call)."""

import json
import logging
import pathlib
from typing import Any

import mooncake
import numpy
import pytest
from mooncake import store as names
from mooncake.mooncake_config import (
    DEFAULT_GLOBAL_SEGMENT_SIZE, DEFAULT_LOCAL_BUFFER_SIZE, MooncakeConfig)
from mooncake.store import MooncakeDistributedStore, ObjectDataType, ReplicateConfig, SoftPinAction
from store_rig import INVALID, Memory, config, opened

FIELDS = {
    "replica_num": (1, 2), "nof_replica_num": (0, 1), "dfs_replica_num": (0, 1),
    "soft_pin_action": (SoftPinAction.PRESERVE, SoftPinAction.ENABLE),
    "soft_pin_ttl_ms": (None, 5000), "with_hard_pin": (False, True),
    "preferred_segments": ([], ["a:1", "b:2"]), "preferred_segment": ("", "c:3"),
    "preferred_nof_segments": ([], ["d"]), "prefer_alloc_in_same_node": (False, True),
    "data_type": (ObjectDataType.UNKNOWN, ObjectDataType.KVCACHE), "group_ids": (None, ["g"])}


@pytest.mark.parametrize("field", FIELDS)
def test_fields_of_a_replicate_config(field: str) -> None:
    settings = ReplicateConfig()
    default, other = FIELDS[field]
    assert getattr(settings, field) == default
    setattr(settings, field, other)
    assert getattr(settings, field) == other
    with pytest.raises(TypeError):
        setattr(settings, field, object())
    assert getattr(settings, field) == other
    setattr(settings, field, default)
    assert str(settings) == str(ReplicateConfig())


def test_a_replicate_config_lists_all_fields() -> None:
    settings = ReplicateConfig()
    for field, (_, value) in FIELDS.items():
        setattr(settings, field, value)
    assert str(settings) == (
        "ReplicateConfig(replica_num=2, nof_replica_num=1, dfs_replica_num=1, "
        "soft_pin_action=SoftPinAction.ENABLE, soft_pin_ttl_ms=5000, with_hard_pin=True, "
        "preferred_segments=['a:1', 'b:2'], preferred_segment='c:3', preferred_nof_segments=['d'], "
        "prefer_alloc_in_same_node=True, data_type=ObjectDataType.KVCACHE, group_ids=['g'])")
    for field in ("replica_num", "soft_pin_ttl_ms"):
        for wrong in ("5", -1, 1.5):
            with pytest.raises(TypeError):
                setattr(settings, field, wrong)


def test_with_soft_pin_is_a_name_for_the_action() -> None:
    settings = ReplicateConfig()
    assert settings.with_soft_pin is False
    settings.with_soft_pin = True
    assert settings.soft_pin_action == SoftPinAction.ENABLE
    settings.with_soft_pin = False
    assert settings.soft_pin_action == SoftPinAction.PRESERVE


def with_fields(**fields: Any) -> ReplicateConfig:
    settings = ReplicateConfig()
    for field, value in fields.items():
        setattr(settings, field, value)
    return settings


@pytest.mark.parametrize("fields", [
    {"nof_replica_num": 1}, {"dfs_replica_num": 1}, {"prefer_alloc_in_same_node": True},
    {"group_ids": []}, {"group_ids": ["a", "b"]}, {"soft_pin_ttl_ms": 5000},
    {"soft_pin_action": SoftPinAction.DISABLE, "soft_pin_ttl_ms": 5000},
    {"soft_pin_action": SoftPinAction.ENABLE, "soft_pin_ttl_ms": 86400001},
    {"soft_pin_action": SoftPinAction.ENABLE, "soft_pin_ttl_ms": 1 << 62}, {"replica_num": 0}])
def test_a_config_that_is_refused(fields: dict[str, Any]) -> None:
    store = opened("embedded")
    memory = Memory(store, 10)
    wrong = with_fields(**fields)
    lists = ["a"], [memory.address], [10]
    for code in [store.put("a", b"x", wrong), store.put_parts("a", b"x", config=wrong),
                 store.put_batch(["a"], [b"x"], wrong), store.upsert("a", b"x", config=wrong),
                 store.upsert_parts("a", b"x", config=wrong),
                 store.upsert_batch(["a"], [b"x"], wrong),
                 store.put_from("a", memory.address, 10, wrong),
                 store.upsert_from("a", memory.address, 10, wrong),
                 *store.batch_put_from(*lists, wrong), *store.batch_upsert_from(*lists, wrong)]:
        assert code == INVALID
    assert store.is_exist("a") == 0
    store.close()


def test_configs_that_are_served(store: MooncakeDistributedStore) -> None:
    here = store.get_hostname()
    for i, fields in enumerate([
            {"replica_num": 4}, {"with_hard_pin": True}, {"with_soft_pin": True},
            {"with_soft_pin": True, "soft_pin_ttl_ms": 1000}, {"preferred_segment": here},
            {"preferred_segments": ["nowhere:1", here]}, {"data_type": ObjectDataType.GENERAL},
            {"group_ids": ["g"]}, {"preferred_nof_segments": ["n"]}]):
        assert store.put(f"{i}", b"x", with_fields(**fields)) == 0
        assert store.get(f"{i}") == b"x"
        assert store.upsert(f"{i}", b"yy", with_fields(**fields)) == 0
        assert store.get(f"{i}") == b"yy"


def test_groups_follow_their_keys(store: MooncakeDistributedStore) -> None:
    """One key of three drops out: the group ids of the others still fit."""
    memory = Memory(store, 10)
    groups = with_fields(group_ids=["g", "", "h"])
    assert store.batch_put_from(
        ["a", "b", "c"], [memory.address, 8, memory.address], [4, 4, 4], groups) == [0, -800, 0]
    assert store.put_batch(["d", "e", "f"], [b"d", b"e", b"f"], groups) == 0


def test_c35_a_config_is_copied_by_the_call(store: MooncakeDistributedStore) -> None:
    shared = with_fields(replica_num=1)
    assert store.put("a", b"x", shared) == 0
    shared.nof_replica_num = 3
    assert store.put("b", b"x", shared) == INVALID
    shared.nof_replica_num = 0
    assert store.put("b", b"x", shared) == 0
    assert shared.preferred_segments is not shared.preferred_segments  # each a copy


def test_enums_are_exported_with_their_members() -> None:
    assert names.KVCACHE is ObjectDataType.KVCACHE and int(names.GENERAL) == 9
    assert not hasattr(names, "PRESERVE")  # as in the published package
    assert SoftPinAction(2) is SoftPinAction.DISABLE


def test_capabilities_say_what_is_served() -> None:
    served = names.capabilities()
    assert served["upsert"] is True and served["tensors"] is False
    assert served["max_key_bytes"] == 4096
    assert "tcp" in served["protocols"] and "nvlink" not in served["protocols"]
    for protocol in served["protocols"]:
        opened("embedded", protocol=protocol).close()
    assert mooncake.BufferPool is names.BufferPool


SIZES = [("512mb", 512 << 20), ("512 MB", 512 << 20), ("0.5gb", 512 << 20), (1024, 1024),
         ("1024", 1024), ("1.5k", 1536), ("2 T", 2 << 40), ("7b", 7), (0, 0), (2.0, 2)]
WRONG_SIZES = ["50%", -1, "-1", "-0.5gb", "", "mb", "1 xb", "1bk", "nan", "inf", True, None, [1]]


def made(**fields: Any) -> MooncakeConfig:
    return MooncakeConfig(**{
        "local_hostname": "host", "metadata_server": "P2PHANDSHAKE", "global_segment_size": 1024,
        "local_buffer_size": 1024, "protocol": "tcp", "device_name": "",
        "master_server_address": "master:1", **fields})


@pytest.mark.parametrize("text, size", SIZES)
def test_c9_sizes_of_mooncake_config(text: Any, size: int) -> None:
    assert made(global_segment_size=text, local_buffer_size=text).global_segment_size == size


@pytest.mark.parametrize("wrong", WRONG_SIZES)
@pytest.mark.parametrize("field", ["global_segment_size", "local_buffer_size"])
def test_c9_wrong_sizes_of_mooncake_config(wrong: Any, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        made(**{field: wrong})


@pytest.mark.parametrize("wrong", ["50%", -1, "-1", 1 << 63, "9223372036854775808"])
@pytest.mark.parametrize("field", ["global_segment_size", "local_buffer_size"])
def test_c9_wrong_sizes_of_setup(
        wrong: Any, field: str, capfd: pytest.CaptureFixture[str]) -> None:
    store = MooncakeDistributedStore()
    assert store.setup(config("embedded", **{field: wrong})) == INVALID
    assert field in capfd.readouterr().err


@pytest.mark.parametrize("text", ["16mb", "16 MB", 16 << 20, "0.015625gb", numpy.int64(16 << 20)])
def test_c9_sizes_of_setup(text: Any) -> None:
    store = opened("embedded", global_segment_size=text)
    assert store.put("a", bytes(12 << 20)) == 0 and store.put("b", bytes(17 << 20)) < 0
    store.close()


@pytest.mark.parametrize("field, wrong", [
    ("local_hostname", ""), ("metadata_server", " "), ("master_server_address", None),
    ("protocol", ""), ("protocol", 7), ("enable_ssd_offload", "perhaps"),
    ("enable_client_http_server", 2), ("client_http_port", "0"), ("client_http_port", 65536),
    ("client_http_port", "http")])
def test_wrong_fields_of_mooncake_config(field: str, wrong: Any) -> None:
    with pytest.raises(ValueError, match=field):
        made(**{field: wrong})


def test_mooncake_config_tidies_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    tidied = made(protocol="RDMA", enable_ssd_offload="Yes", client_http_port="81")
    assert (tidied.protocol, tidied.enable_ssd_offload, tidied.client_http_port) == ("rdma", True, 81)
    assert caplog.records == []
    with caplog.at_level(logging.WARNING):
        assert made(protocol="Pigeon").protocol == "pigeon"
    assert "pigeon" in caplog.text


def test_mooncake_config_from_a_file(
        tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mooncake.json"
    required = {"local_hostname": "h", "metadata_server": "P2PHANDSHAKE", "master_server_address": "m"}
    path.write_text(json.dumps({**required, "global_segment_size": "1gb", "else": 1}))
    read = MooncakeConfig.from_file(str(path))
    assert read == MooncakeConfig(
        "h", "P2PHANDSHAKE", 1 << 30, DEFAULT_LOCAL_BUFFER_SIZE, "tcp", "", "m")
    monkeypatch.setenv("MOONCAKE_CONFIG_PATH", str(path))
    assert MooncakeConfig.load_from_env() == read
    for name in required:
        path.write_text(json.dumps({key: value for key, value in required.items() if key != name}))
        with pytest.raises(ValueError, match=f"^Missing required config field: {name}$"):
            MooncakeConfig.from_file(str(path))
    path.write_text("[]")
    with pytest.raises(ValueError, match="JSON object"):
        MooncakeConfig.from_file(str(path))


def test_mooncake_config_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MOONCAKE_CONFIG_PATH", "MOONCAKE_MASTER"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="MOONCAKE_MASTER"):
        MooncakeConfig.load_from_env()
    monkeypatch.setenv("MOONCAKE_MASTER", "m:1")
    assert MooncakeConfig.load_from_env() == MooncakeConfig(
        "localhost", "P2PHANDSHAKE", DEFAULT_GLOBAL_SEGMENT_SIZE, DEFAULT_LOCAL_BUFFER_SIZE, "tcp",
        "", "m:1")
    for name, value in {"MOONCAKE_LOCAL_HOSTNAME": "h", "MOONCAKE_TE_META_DATA_SERVER": "http://x",
                        "MOONCAKE_GLOBAL_SEGMENT_SIZE": "2gb", "MOONCAKE_LOCAL_BUFFER_SIZE": "0",
                        "MOONCAKE_PROTOCOL": "RDMA", "MOONCAKE_DEVICE": "mlx5_0",
                        "MOONCAKE_OFFLOAD_ENABLED": "on", "MOONCAKE_TENANT_ID": "t",
                        "MOONCAKE_OFFLOAD_FILE_STORAGE_PATH": "/p",
                        "MOONCAKE_ENABLE_CLIENT_HTTP_SERVER": "1",
                        "MOONCAKE_CLIENT_HTTP_PORT": "99"}.items():
        monkeypatch.setenv(name, value)
    assert MooncakeConfig.load_from_env() == MooncakeConfig(
        "h", "http://x", 2 << 30, 0, "rdma", "mlx5_0", "m:1", True, "/p", "t", True, 99)
    monkeypatch.setenv("MOONCAKE_GLOBAL_SEGMENT_SIZE", "much")
    with pytest.raises(ValueError, match="global_segment_size"):
        MooncakeConfig.load_from_env()
