"""Proves the Python store's calls on registered memory: bytes go to and from where they lie; what is
not registered, too small, or nonsense gives a code for its own key and harms no other."""

import ctypes
from typing import Any

import numpy
import pytest
from mooncake.engine import TransferEngine
from mooncake.store import MooncakeDistributedStore, ReplicateConfig
from store_rig import (
    INVALID, MEBIBYTE, MISSING, NOT_REGISTERED, Memory, Pages, opened, random_bytes, together)

HUGE = (1 << 63, (1 << 64) - 1)


def test_what_is_put_from_memory_is_got_into_memory(store: MooncakeDistributedStore) -> None:
    source, target = Memory(store, 3 * MEBIBYTE), Memory(store, 3 * MEBIBYTE)
    value = source.fill(1)
    assert store.put_from("a", source.address, source.size) == 0
    assert store.get("a") == value
    assert store.get_into("a", target.address, target.size) == len(value)
    assert target.bytes.tobytes() == value
    assert store.put_from("b", source.address + 5, 1000) == 0  # any part of what is registered
    target.bytes[:] = 0
    assert store.get_into("b", target.address + 7, 1000) == 1000
    assert target.bytes[:1010].tobytes() == b"\0" * 7 + value[5:1005] + b"\0" * 3
    assert store.put_from("a", target.address, 10) == 0 and store.get("a") == value
    assert store.upsert_from("a", source.address, 10) == 0 and store.get("a") == value[:10]
    source.end()
    target.end()


def test_no_bytes_are_success_and_nothing(store: MooncakeDistributedStore) -> None:
    memory = Memory(store, 100)
    assert store.put_from("a", memory.address, 0) == 0
    assert store.batch_put_from(["a", "b"], [memory.address, 0], [0, 0]) == [0, 0]
    assert store.batch_put_from_multi_buffers(["a", "b"], [[], [memory.address]], [[], [0]]) == [0, 0]
    assert store.batch_is_exist(["a", "b"]) == [0, 0]
    assert store.put("a", b"x") == 0
    assert store.get_into("a", memory.address, 0) == INVALID  # no room
    assert store.get_into("b", memory.address, 0) == MISSING
    assert store.batch_get_into_multi_buffers(["a", "b"], [[], []], [[], []]) == [INVALID, MISSING]


def test_batches_from_and_into_memory(store: MooncakeDistributedStore) -> None:
    count, size = 1500, 700
    source, target = Memory(store, count * size), Memory(store, count * size)
    value = source.fill(2)
    keys = [f"k{i}" for i in range(count)]
    at = [source.address + i * size for i in range(count)]
    assert store.batch_put_from(keys, at, [size] * count) == [0] * count
    to = [target.address + i * size for i in range(count)]
    assert store.batch_get_into(keys, to, [size] * count) == [size] * count
    assert target.bytes.tobytes() == value
    # As arrays, in another order; some are missing.
    target.bytes[:] = 0
    names = numpy.array([*keys[::-1], "absent"], dtype="S8")
    places = numpy.array([*to, target.address], dtype=numpy.uint64)
    read = store.batch_get_into(names, places, numpy.full(count + 1, size))
    assert isinstance(read, numpy.ndarray) and read.tolist() == [size] * count + [MISSING]
    assert target.bytes[:size].tobytes() == value[-size:]
    found = store.batch_upsert_from(names[:2], numpy.array(at[:2]), numpy.array([3, 4]))
    assert found.tolist() == [0, 0] and store.get(keys[-1]) == value[:3]


def test_objects_of_several_buffers(store: MooncakeDistributedStore) -> None:
    source, target = Memory(store, 1000), Memory(store, 1000)
    value = source.fill(3)
    at = source.address
    codes = store.batch_put_from_multi_buffers(
        ["a", "b"], [[at + 10, at, at + 500], numpy.array([at])], [[5, 0, 20], numpy.array([7])])
    assert codes == [0, 0]
    assert store.get_batch(["a", "b"]) == [value[10:15] + value[500:520], value[:7]]
    to = target.address
    assert store.batch_get_into_multi_buffers(
        ["a", "b", "absent"], [[to + 900, to], [to + 100], [to]], [[3, 100], [7], [1]],
        prefer_alloc_in_same_node=True) == [25, 7, MISSING]
    assert target.bytes[900:904].tobytes() == value[10:13] + b"\0"
    assert target.bytes[:23].tobytes() == value[13:15] + value[500:520] + b"\0"
    assert target.bytes[100:107].tobytes() == value[:7]
    here = ReplicateConfig()
    here.prefer_alloc_in_same_node = True
    assert store.batch_put_from_multi_buffers(["c"], [[at]], [[5]], here) == [0]


def test_metadata_and_data_are_one_object(store: MooncakeDistributedStore) -> None:
    """The codes of this call are the published package's own: -1, or a positive number."""
    memory = Memory(store, 100)
    value = memory.fill(4)
    at = memory.address
    assert store.put_from_with_metadata("a", at, at + 50, 20, 8) == 0
    assert store.get("a") == value[50:58] + value[:20]
    assert store.put_from_with_metadata("a", at, at, 1, 1) == 0  # it exists
    assert store.put_from_with_metadata("b", at, 0, 20, 0) == 0
    assert store.get("b") == value[:20]
    for arguments in [(at, at, 0, 0), (0, at, 20, 8), (at, 0, 20, 8), (at, at, 101, 8),
                      (at, at, HUGE[1], 8), (HUGE[1], HUGE[1], 8, 8)]:
        assert store.put_from_with_metadata("c", *arguments) == -1
    here = ReplicateConfig()
    here.prefer_alloc_in_same_node = True
    assert store.put_from_with_metadata("c", at, at, 8, 8, here) == -1
    assert store.put_from_with_metadata("", at, at, 8, 8) == 600
    assert store.is_exist("c") == 0


def test_a_buffer_that_is_too_small(store: MooncakeDistributedStore) -> None:
    memory = Memory(store, 100)
    assert store.put_batch(["small", "large"], [b"s" * 100, b"l" * 101]) == 0
    assert store.get_into("large", memory.address, 100) == INVALID
    keys, places = ["large", "small", "absent"], [memory.address] * 3
    assert store.batch_get_into(keys, places, [100] * 3) == [INVALID, 100, MISSING]
    assert memory.bytes.tobytes() == b"s" * 100


@pytest.mark.parametrize("address, size", [
    (0, 8), (1, 8), (4096, 1 << 40), (HUGE[0], 8), (HUGE[1], 1), (HUGE[1], HUGE[1]), (8, HUGE[1])])
def test_memory_that_is_not_registered(address: int, size: int) -> None:
    store = opened("embedded")
    memory = Memory(store, 100)
    memory.fill(5)
    assert store.put("there", b"x") == 0
    assert store.put_from("a", address, size) == NOT_REGISTERED
    assert store.upsert_from("there", address, size) == NOT_REGISTERED
    assert store.get_into("there", address, size) == NOT_REGISTERED
    good = memory.address
    assert store.batch_put_from(["a", "b"], [address, good], [size, 10]) == [NOT_REGISTERED, 0]
    assert store.batch_get_into(["b", "there"], [good, address], [10, size]) == [10, NOT_REGISTERED]
    many = [[good, address], [good, good]], [[1, size], [1, 2]]
    assert store.batch_put_from_multi_buffers(["c", "d"], *many) == [NOT_REGISTERED, 0]
    assert store.batch_get_into_multi_buffers(["d", "d"], *many) == [NOT_REGISTERED, 3]
    assert store.register_buffer(address, size) == INVALID  # nothing is mapped there
    assert store.unregister_buffer(address) == NOT_REGISTERED
    assert store.get("there") == b"x" and store.batch_is_exist(["a", "c"]) == [0, 0]
    store.close()


def test_just_outside_of_what_is_registered(store: MooncakeDistributedStore) -> None:
    whole = numpy.zeros(3000, numpy.uint8)
    at = whole.ctypes.data
    assert store.register_buffer(at + 1000, 1000) == 0
    assert store.put_from("a", at + 1000, 1000) == 0
    for address, size in [(at + 999, 2), (at + 1000, 1001), (at + 2000, 1), (at, 3000)]:
        assert store.put_from("b", address, size) == NOT_REGISTERED
        assert store.get_into("a", address, size) == NOT_REGISTERED
    assert store.register_buffer(at + 500, 1000) == 0  # overlapping, and again
    assert store.register_buffer(at + 1000, 1000) == 0
    assert store.unregister_buffer(at + 1000) == 0
    assert store.put_from("b", at + 1500, 500) == 0
    assert store.unregister_buffer(at + 1000) == 0
    assert store.put_from("c", at + 1500, 500) == NOT_REGISTERED
    assert store.put_from("c", at + 500, 1000) == 0
    assert store.unregister_buffer(at + 500) == 0
    assert store.unregister_buffer(at + 500) == NOT_REGISTERED
    assert whole.sum() == 0


@pytest.mark.parametrize("keys, addresses, sizes", [
    (["a", "b"], [0], [1, 1]), (["a", "b"], [0, 0], [1]), (["a", "b"], [], []), (["a"], [0, 0], [1, 1])])
def test_lists_of_unequal_lengths(keys: list[str], addresses: list[int], sizes: list[int]) -> None:
    store = opened("embedded")
    refused = [INVALID] * len(keys)
    assert store.batch_put_from(keys, addresses, sizes) == refused
    assert store.batch_upsert_from(keys, addresses, sizes) == refused
    assert store.batch_get_into(keys, addresses, sizes) == refused
    rows = [[a] for a in addresses], [[s] for s in sizes]
    assert store.batch_put_from_multi_buffers(keys, *rows) == refused
    assert store.batch_get_into_multi_buffers(keys, *rows) == refused
    memory = Memory(store, 10)
    assert store.batch_put_from_multi_buffers(
        ["a", "b"], [[memory.address], [memory.address]], [[1, 1], [1]]) == [INVALID, 0]
    store.close()


@pytest.mark.parametrize("wrong, said", [
    (5, "int"), ("ab", "str"), ([-1], "-1"), ([1 << 64], "2"), ([1.5], "float"), ([True], "bool"),
    ([None], "NoneType"), (numpy.array([1], numpy.int32), "int32"), (object(), "object"),
    (numpy.array([-1]), "-1")])
def test_wrong_addresses_and_sizes_are_named(wrong: Any, said: str) -> None:
    store = opened("embedded")
    for call in (store.batch_put_from, store.batch_upsert_from, store.batch_get_into):
        with pytest.raises(TypeError, match=f"buffer_ptrs.*{said}"):
            call(["a"], wrong, [1])
        with pytest.raises(TypeError, match=f"sizes.*{said}"):
            call(["a"], [1], wrong)
    for call in (store.batch_put_from_multi_buffers, store.batch_get_into_multi_buffers):
        with pytest.raises(TypeError, match=r"all_buffer_ptrs\[0\].*" + said):
            call(["a"], [wrong], [[1]])
        with pytest.raises(TypeError, match=r"all_sizes\[1\].*" + said):
            call(["a", "b"], [[1], [1]], [[1], wrong])
        for flat in (wrong, [1, 2]):
            with pytest.raises(TypeError, match="all_sizes"):
                call(["a"], [[1]], flat)
    store.close()


@pytest.mark.parametrize("wrong", [-1, 1 << 64, 1.5, "8", None, True])
def test_wrong_scalars_are_refused(wrong: Any) -> None:
    store = opened("embedded")
    for call in (store.put_from, store.upsert_from, store.get_into):
        for arguments in (("a", wrong, 1), ("a", 1, wrong)):
            with pytest.raises(TypeError):
                call(*arguments)
    for call in (lambda: store.register_buffer(wrong, 1), lambda: store.register_buffer(1, wrong),
                 lambda: store.unregister_buffer(wrong),
                 lambda: store.put_from_with_metadata("a", 1, 1, wrong, 1)):
        with pytest.raises(TypeError):
            call()
    store.close()


def test_memory_for_reading_only_is_no_target(store: MooncakeDistributedStore) -> None:
    text = b"constant" * 1000
    page = Pages(8192)
    page.map[: len(text[:8192])] = text[:8192]
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(page.address), 8192, 1) == 0
    assert store.register_buffer(page.address, 8192) == 0
    assert store.put_from("a", page.address, 8000) == 0
    assert store.get("a") == text[:8000]
    assert store.get_into("a", page.address, 8192) == NOT_REGISTERED
    assert store.unregister_buffer(page.address) == 0


def test_not_set_up() -> None:
    store = MooncakeDistributedStore()
    assert store.register_buffer(4096, 10) == store.unregister_buffer(4096) == INVALID
    assert store.put_from("a", 4096, 10) == store.upsert_from("a", 4096, 10) == INVALID
    assert store.get_into("a", 4096, 10) == INVALID
    assert store.put_from_with_metadata("a", 4096, 4096, 1, 1) == INVALID
    lists = ["a", "b"], [1, 2], [1, 2]
    rows = ["a", "b"], [[1], [2]], [[1], [2]]
    assert store.batch_put_from(*lists) == store.batch_get_into(*lists) == [INVALID] * 2
    assert store.batch_upsert_from(*lists) == [INVALID] * 2
    assert store.batch_put_from_multi_buffers(*rows) == [INVALID] * 2
    assert store.batch_get_into_multi_buffers(*rows) == [INVALID] * 2


def test_threads_that_register_and_use(store: MooncakeDistributedStore) -> None:
    def work(thread: int) -> None:
        for i in range(20):
            memory = Memory(store, 20_000 + thread)
            value = memory.fill(thread * 100 + i)
            assert store.put_from(f"{thread}/{i}", memory.address, memory.size) == 0
            memory.bytes[:] = 0
            assert store.get_into(f"{thread}/{i}", memory.address, memory.size) == memory.size
            assert memory.bytes.tobytes() == value
            memory.end()

    together(8, work)


def test_an_engine_is_shared(capfd: pytest.CaptureFixture[str]) -> None:
    """What is registered with one is so with the other, and either may be dropped first."""
    engine = TransferEngine()
    arguments = ("127.0.0.1", "P2PHANDSHAKE", MEBIBYTE * 16, MEBIBYTE, "tcp", "", "embedded")
    store = MooncakeDistributedStore()
    assert store.setup(*arguments, engine=engine) == INVALID
    assert "engine" in capfd.readouterr().err
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    assert store.setup(*arguments, engine=engine) == 0
    assert store.get_hostname() == f"127.0.0.1:{engine.get_rpc_port()}"
    memory = numpy.frombuffer(random_bytes(4096), numpy.uint8).copy()
    at = memory.ctypes.data
    assert engine.register_memory(at, 4096) == 0
    assert store.put_from("a", at, 4096) == 0 and store.get("a") == memory.tobytes()
    assert engine.unregister_memory(at) == 0
    assert store.put_from("b", at, 4096) == NOT_REGISTERED
    assert store.register_buffer(at, 4096) == store.register_buffer(at, 4096) == 0
    assert store.close() == 0
    assert engine.unregister_memory(at) == -3  # the store's registrations have ended with it
    assert store.setup(*arguments, engine=engine) == 0
    del engine
    assert store.put("b", b"x") == 0 and store.get("b") == b"x"
    assert store.close() == 0
    engine = TransferEngine()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    assert store.setup(*arguments, engine=engine) == 0
    assert store.close() == 0
    buffer = engine.allocate_managed_buffer(4096)  # it goes on without the store
    assert buffer != 0 and engine.free_managed_buffer(buffer, 4096) == 0
