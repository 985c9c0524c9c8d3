"""Proves the Python store's calls on many keys, and those that read and write values as they are:
what comes out is what went in, one code for each key, in a list or, for an array, in an array; and
that arguments of a wrong type are named and change nothing. Cases C11 (a put of an existing key)
and C12 (many put the same)."""

import array
import gc
import threading
import weakref
from typing import Any

import numpy
import pytest
from mooncake.store import BufferHandle, MooncakeDistributedStore
from store_rig import INVALID, LEASED, MEBIBYTE, MISSING, opened, random_bytes, together

KEYS = [f"key/{i}" for i in range(2500)]  # more than one message to the Master


def fill(store: MooncakeDistributedStore, keys: list[str]) -> list[bytes]:
    values = [random_bytes(1 + 37 * i % 5000) for i in range(len(keys))]
    assert store.put_batch(keys, values) == 0
    return values


def test_a_store_that_is_not_set_up_gives_one_code_for_each_key() -> None:
    store = MooncakeDistributedStore()
    assert store.put_batch(["a", "b"], [b"1", b"2"]) == INVALID
    assert store.put_parts("a", b"1") == INVALID
    assert store.upsert("a", b"1") == INVALID
    assert store.upsert_batch(["a"], [b"1"]) == INVALID
    assert store.get_batch(["a", "b"]) == [b"", b""]
    assert store.get_buffer("a") is None
    assert store.batch_get_buffer(["a", "b"]) == [None, None]
    assert store.batch_is_exist(["a", "b"]) == [INVALID, INVALID]
    assert store.batch_remove(["a", "b"]) == [INVALID, INVALID]
    assert store.get_size("a") == INVALID
    assert store.get_hostname() == "" and store.health_check() == 1
    assert (store.batch_is_exist(numpy.array([b"a", b"b"])) == INVALID).all()


def test_many_are_put_asked_for_got_and_removed(store: MooncakeDistributedStore) -> None:
    values = fill(store, KEYS)
    mixed = [key if i % 2 else key.encode() for i, key in enumerate([*KEYS, "absent"])]
    assert store.batch_is_exist(mixed) == [1] * len(KEYS) + [0]
    assert store.get_batch(mixed) == [*values, b""]
    assert [store.get_size(key) for key in KEYS[:5]] == [len(value) for value in values[:5]]
    assert store.get_size("absent") == MISSING
    assert store.batch_remove(mixed) == [LEASED] * len(KEYS) + [MISSING]
    assert store.batch_remove(mixed, force=True) == [0] * len(KEYS) + [MISSING]
    assert store.batch_is_exist(KEYS) == [0] * len(KEYS)


def test_batches_of_none(store: MooncakeDistributedStore) -> None:
    for nothing in ([], ()):
        assert store.put_batch(nothing, []) == 0
        assert store.get_batch(nothing) == store.batch_get_buffer(nothing) == []
        assert store.batch_is_exist(nothing) == store.batch_remove(nothing) == []
    assert store.batch_is_exist(numpy.array([], dtype="S4")).shape == (0,)


def test_keys_in_an_array_give_an_array(store: MooncakeDistributedStore) -> None:
    assert store.put_batch(["ab", "abcd", b"\xffz"], [b"1", b"22", b"333"]) == 0
    keys = numpy.array([b"ab", b"abcd", b"\xffz", b"x"])  # each padded with zeros to four bytes
    found = store.batch_is_exist(keys)
    assert isinstance(found, numpy.ndarray) and found.dtype == numpy.int64
    assert found.tolist() == [1, 1, 1, 0]
    assert store.batch_is_exist(keys[::-1]).tolist() == [0, 1, 1, 1]
    assert store.get_batch(keys) == [b"1", b"22", b"333", b""]
    assert store.batch_remove(keys, True).tolist() == [0, 0, 0, MISSING]
    assert store.batch_is_exist(numpy.array(["ab", "x"])) == [0, 0]  # of str: each an object anyway
    assert store.batch_is_exist(numpy.array([b"ab", "x"], dtype=object)) == [0, 0]


@pytest.mark.parametrize("wrong, said", [
    ("abc", "str"), (b"abc", "bytes"), (None, "NoneType"), (7, "int"), ({"a": 1}, "dict"),
    (["a", 7], r"keys\[1\].*int"), (["\ud800"], r"keys\[0\].*UTF-8"), ([None], r"keys\[0\]"),
    (numpy.array([[b"a"]]), "dimension"), (numpy.array([1, 2]), r"keys\[0\]"), (range(2), "keys")])
def test_wrong_keys_are_named(wrong: Any, said: str) -> None:
    store = opened("embedded")
    for call in (store.batch_is_exist, store.get_batch, store.batch_get_buffer, store.batch_remove,
                 lambda keys: store.put_batch(keys, [b"x", b"y"]),
                 lambda keys: store.batch_get_into(keys, [0], [1]),
                 lambda keys: store.batch_put_from(keys, [0], [1])):
        with pytest.raises(TypeError, match=said):
            call(wrong)
    store.close()


def test_a_bad_key_spoils_no_other(store: MooncakeDistributedStore) -> None:
    keys = ["good", "", "k" * 4097, "also good"]
    assert store.put_batch(keys, [b"1", b"2", b"3", b"4"]) == INVALID
    assert store.batch_is_exist(keys) == [1, INVALID, INVALID, 1]
    assert store.get_batch(keys) == [b"1", b"", b"", b"4"]
    assert store.batch_remove(keys, True) == [0, INVALID, INVALID, 0]


def test_put_batch_gives_the_first_code_that_is_not_0(store: MooncakeDistributedStore) -> None:
    assert store.put_batch(["a", "b"], [b"x"]) == INVALID
    assert store.put_batch(["a", "b", "c"], [b"x", b"", b"z"]) == INVALID
    assert store.batch_is_exist(["a", "b", "c"]) == [1, 0, 1]
    for wrong in ("xyz", b"xyz", None, [b"x", "y"], [b"x", 5]):
        with pytest.raises(TypeError, match="values"):
            store.put_batch(["d", "e"], wrong)
    with pytest.raises(BufferError):
        store.put_batch(["d", "e"], [b"x", memoryview(b"0123")[::2]])
    assert store.batch_is_exist(["d", "e"]) == [0, 0]


def test_values_of_a_batch_are_any_buffers(store: MooncakeDistributedStore) -> None:
    values = [b"x", bytearray(b"yy"), memoryview(b"zzzz")[1:3], array.array("d", [1.5]),
              numpy.arange(6, dtype=numpy.int16).reshape(2, 3)]
    keys = tuple(f"v{i}" for i in range(len(values)))
    assert store.put_batch(keys, tuple(values)) == 0
    assert store.get_batch(keys) == [memoryview(value).tobytes() for value in values]
    values[1].extend(b"!")  # BufferError while somebody holds it


def test_parts_are_put_as_one(store: MooncakeDistributedStore) -> None:
    parts = [b"head", bytearray(b""), memoryview(b"0123456789")[2:5], numpy.frombuffer(b"tail", "u1")]
    assert store.put_parts("a", *parts) == 0
    assert store.get("a") == b"head234tail"
    assert store.put_parts("b") == INVALID and store.put_parts("b", b"", b"") == INVALID
    for wrong in (numpy.zeros((2, 2), "u1"), array.array("i", [1])):
        with pytest.raises(RuntimeError, match=r"parts\[1\]"):
            store.put_parts("b", b"x", wrong)
    with pytest.raises(TypeError):
        store.put_parts("b", b"x", "text")
    with pytest.raises(TypeError):
        store.put_parts("b", b"x", config=5)
    assert store.is_exist("b") == 0


def test_c11_a_put_keeps_and_an_upsert_replaces(store: MooncakeDistributedStore) -> None:
    assert store.put("a", b"old") == 0
    assert store.put_parts("a", b"n", b"ew") == 0
    assert store.put_batch(["a", "b"], [b"newer", b"b"]) == 0
    assert store.get_batch(["a", "b"]) == [b"old", b"b"]
    assert store.upsert("a", b"new!") == 0
    assert store.get("a") == b"new!" and store.get_size("a") == 4
    assert store.upsert_parts("a", b"of an", b"other size") == 0
    assert store.get("a") == b"of another size"
    assert store.upsert_batch(["a", "c"], [b"x" * 70000, b"c"]) == 0
    assert store.get_batch(["a", "b", "c"]) == [b"x" * 70000, b"b", b"c"]


def test_c11_readers_see_one_version_or_the_other(store: MooncakeDistributedStore) -> None:
    sizes = (MEBIBYTE, 300_000)
    assert store.upsert("a", b"\0" * sizes[0]) == 0
    end = threading.Event()

    def work(thread: int) -> None:
        try:
            if thread == 0:
                for i in range(1, 40):
                    assert store.upsert("a", bytes([i]) * sizes[i % 2]) == 0
                return
            while not end.is_set():
                value = store.get("a") if thread == 1 else store.get_batch(["a"])[0]
                assert value == value[:1] * sizes[(value or b"\0")[0] % 2] or value == b""
        finally:
            if thread == 0:
                end.set()

    together(3, work)


def test_c12_many_put_the_same_keys(store: MooncakeDistributedStore) -> None:
    keys = [f"same/{i}" for i in range(100)]

    def work(thread: int) -> None:
        assert store.put_batch(keys, [bytes([thread]) * 2000] * len(keys)) == 0

    together(16, work)
    values = store.get_batch(keys)
    assert all(len(value) == 2000 and value.count(value[0]) == 2000 for value in values)


def test_a_buffer_handle_is_the_value(store: MooncakeDistributedStore) -> None:
    value = random_bytes(300_001)
    assert store.put("a", value) == 0
    handle = store.get_buffer("a")
    assert isinstance(handle, BufferHandle)
    assert handle.size() == len(handle) == len(value) and handle.ptr() != 0
    view = memoryview(handle)
    assert view.tobytes() == value and view.ndim == 1 and view.itemsize == 1
    numbers = numpy.frombuffer(handle, dtype=numpy.uint8)
    assert numbers.ctypes.data == handle.ptr()
    numbers[0] ^= 1  # its own memory: the object stays as it is
    assert store.get("a") == value
    assert store.get_buffer("absent") is None
    one, none, two = store.batch_get_buffer(["a", "absent", "a"])
    assert none is None and bytes(one) == bytes(two) == value


def test_a_buffer_handle_outlives_the_store_and_frees_its_memory() -> None:
    store = opened("embedded")
    assert store.put("a", b"kept") == 0
    handle = store.get_buffer("a")
    view = memoryview(handle)
    store.close()
    del store, handle
    gc.collect()
    assert bytes(view) == b"kept"


def test_keys_and_values_may_change_while_a_call_waits(store: MooncakeDistributedStore) -> None:
    """The list is emptied by another thread; the call goes on with what it was given."""
    end = threading.Event()
    names = [f"{i:06}/" + "x" * 200 for i in range(2000)]
    assert store.put_batch(names, [b"v"] * len(names)) == 0
    shared = [name + "" for name in names]

    def work(thread: int) -> None:
        if thread == 0:
            try:
                for _ in range(20):
                    assert set(store.batch_is_exist(shared)) <= {0, 1}
            finally:
                end.set()
        while not end.is_set():
            shared[:] = []
            shared[:] = ["y" + name[1:] if thread == 1 else "" + name for name in names]

    together(3, work)


def test_a_store_is_freed_with_its_last_reference() -> None:
    class Mine(MooncakeDistributedStore):
        pass

    store = opened("embedded", Mine)
    gone = weakref.ref(store)
    assert store.put("a", b"x") == 0
    del store
    gc.collect()
    assert gone() is None


def test_a_store_is_named_and_healthy(store: MooncakeDistributedStore) -> None:
    assert store.health_check() == 0 and store.get_hostname() != ""
