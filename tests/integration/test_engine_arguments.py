"""Proves that the Python Transfer Engine refuses what is wrong and names it: its settings and its
environment (case C24), lists of addresses; and that what it can't serve is said once: a fast network
that is missing (case C7), a folder for logs."""

import array
import ctypes
import socket
from typing import Any

import numpy
import pytest
from conftest import free_port
from mooncake.engine import TransferEngine, TransferOpcode
from test_engine_python import Memory, name_of, opened


@pytest.mark.parametrize("arguments, names", [
    (("", "P2PHANDSHAKE", "tcp", ""), ["local_hostname"]),
    (("no host", "P2PHANDSHAKE", "tcp", ""), ["local_hostname", "no host"]),
    (("[::zz]", "P2PHANDSHAKE", "tcp", ""), ["local_hostname", "::zz"]),
    (("127.0.0.1", "", "tcp", ""), ["metadata_server: ''", "P2PHANDSHAKE"]),
    (("127.0.0.1", "", "tcp", "", "etcd"), ["metadata_server: ''", "'etcd'"]),
    (("127.0.0.1", "etcd://127.0.0.1:2379", "tcp", ""), ["metadata_server", "etcd", "http://"]),
    (("127.0.0.1", "127.0.0.1:2379", "tcp", ""), ["metadata_server: '127.0.0.1:2379'", "http://"]),
    (("127.0.0.1", "redis://127.0.0.1:6379", "tcp", ""), ["metadata_server", "redis"]),
    (("127.0.0.1", "P2PHANDSHAKE", "carrier_pigeon", ""),
     ["protocol", "carrier_pigeon", "tcp", "rdma"]),
    (("127.0.0.1", "P2PHANDSHAKE", "xgmi", ""), ["protocol", "xgmi"]),
    (("127.0.0.1", "P2PHANDSHAKE", "nvlink", ""), ["protocol", "nvlink", "device"]),
    (("127.0.0.1", "127.0.0.1:6379", "tcp", "", "redis"), ["metadata_server: '127.0.0.1:6379'", "redis"])])
def test_c24_a_wrong_setting_is_refused_and_named(
        arguments: tuple[str, ...], names: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    engine = TransferEngine()
    call = engine.initialize if len(arguments) == 4 else engine.initialize_ext
    assert call(*arguments) == -1
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and all(name in said for name in names), said
    assert "etcd://" not in said or "etcd://" in arguments[1], "a value that nobody gave"
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0


@pytest.mark.parametrize("variable, value", [("MC_TRANSFER_TIMEOUT", "soon"),
                                             ("MC_TRANSFER_TIMEOUT", "-1"),
                                             ("MC_LOG_LEVEL", "bogus"), ("MC_MIN_RPC_PORT", "80"),
                                             ("MC_MAX_RPC_PORT", "65536"), ("MC_MAX_RPC_PORT", "14999"),
                                             ("MC_FORCE_TCP", "perhaps")])
def test_c24_a_wrong_variable_is_refused_and_named(
        variable: str, value: str, monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(variable, value)
    assert TransferEngine().initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == -1
    assert variable in capfd.readouterr().err


def test_what_is_not_served_is_said_once(monkeypatch: pytest.MonkeyPatch,
                                         capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("MC_LOG_DIR", "/no/such/folder")
    opened()
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "MC_LOG_DIR" in said and "no effect" in said, said


def test_the_log_level_is_served(monkeypatch: pytest.MonkeyPatch,
                                 capfd: pytest.CaptureFixture[str]) -> None:
    try:
        for level, lines in (("ERROR", 0), ("WARNING", 1)):
            monkeypatch.setenv("MC_LOG_LEVEL", level)
            opened(protocol="rdma")
            assert capfd.readouterr().err.count("\n") == lines
    finally:
        monkeypatch.setenv("MC_LOG_LEVEL", "WARNING")
        opened()


def test_ports_of_a_range(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        while True:  # the port after one that is free
            port = free_port()
            try:
                taken.bind(("127.0.0.1", port + 1))
                break
            except OSError:
                continue
        taken.listen()
        monkeypatch.setenv("MC_MIN_RPC_PORT", str(port))
        monkeypatch.setenv("MC_MAX_RPC_PORT", str(port + 1))
        one = opened()
        assert one.get_rpc_port() == port
        assert TransferEngine().initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == -1
        said = capfd.readouterr().err
        assert said.count("\n") == 1 and "MC_MIN_RPC_PORT" in said and "2 ports" in said, said


@pytest.mark.parametrize("protocol, warnings", [("", 0), ("tcp", 0), ("rdma", 1), ("efa", 1)])
def test_c7_a_missing_network_falls_back_with_one_warning(
        protocol: str, warnings: int, capfd: pytest.CaptureFixture[str]) -> None:
    one, two = opened(protocol=protocol), opened()
    said = capfd.readouterr().err
    assert said.count("\n") == warnings and (warnings == 0 or protocol in said), said
    mine, theirs = Memory(one, 4096), Memory(two, 4096)
    assert one.transfer_sync_write(name_of(two), mine.address, theirs.address, 4096) == 0
    assert (mine.bytes == theirs.bytes).all()


def test_an_ipv6_address_without_brackets_gets_advice(capfd: pytest.CaptureFixture[str]) -> None:
    opened("::1")
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "'[::1]:port'" in said, said
    opened("[::1]")
    assert capfd.readouterr().err == ""


# What is refused, and what is said of it.
WRONG_LISTS: list[tuple[Any, str]] = [
    (5, "not int"), ("12", "not str"), (b"12", "'B'"), (bytearray(b"12"), "'B'"),
    ({1: 2}, "not dict"), (["1"], "[0]: '1' (str) is not an int"), ([1, 1.5], "[1]: 1.5 (float)"),
    ([None], "[0]: None (NoneType)"), ([0, True], "[1]: True (bool) is not an int"),
    ([numpy.bool_(True)], "[0]: "), ([1, 2, -1], "[2]: -1 (int) is not within 0 and 2^64 - 1"),
    ([1 << 64], "[0]: 18446744073709551616 (int) is not within"), ([numpy.int32(-5)], "[0]: "),
    ([10 ** 5000], "[0]: int (int) is not within"), (numpy.array([7, -1]), "[1]: -1 is not within"),
    (numpy.array([7, -2], dtype=">i8"), "[1]: -2 is not within"),
    (numpy.array([[1]]), "dtype int64 and shape (1, 1)"), (numpy.array(1), "dtype int64 and shape ()"),
    (array.array("i", [1]), "array.array of format 'i'"), ((ctypes.c_int32 * 2)(), "'<i'"),
    *[(numpy.ones(1, dtype=dtype), f"dtype {dtype} and shape (1,)") for dtype in (
        "int8", "uint8", "int16", "uint16", "int32", "uint32", "float32", "float64", "bool",
        "complex128", "object", "datetime64[s]", ">i4")]]


@pytest.mark.parametrize("wrong, words", WRONG_LISTS)
def test_a_wrong_list_is_named(wrong: Any, words: str) -> None:
    engine = TransferEngine()  # needs no engine
    for name, call in [
            ("buffers", lambda: engine.batch_transfer_sync_write("a", wrong, [1], [1])),
            ("peer_buffer_addresses", lambda: engine.batch_transfer_async_read("a", [1], wrong, [1])),
            ("lengths", lambda: engine.batch_transfer_sync("a", [1], [1], wrong, TransferOpcode.Read)),
            ("buffer_addresses", lambda: engine.batch_register_memory(wrong, [1])),
            ("capacities", lambda: engine.batch_register_memory([1], wrong)),
            ("buffer_addresses", lambda: engine.batch_unregister_memory(wrong)),
            ("batch_ids", lambda: engine.get_batch_transfer_status(wrong))]:
        with pytest.raises(TypeError) as caught:
            call()
        said = str(caught.value)
        assert said.startswith(name) and words in said, said
        assert said.startswith(f"{name}[") or "array of int64 or uint64 with one dimension" in said
