"""Proves removal of many objects by pattern, or of all, and what is said about where copies lie."""

import ctypes
import sys

import numpy
import pytest
from conftest import MasterProcess
from mooncake import store as names
from mooncake.store import Descriptor, MooncakeDistributedStore, ReplicaStatus, ReplicateConfig
from store_rig import INVALID, opened


def fill(store: MooncakeDistributedStore, *keys: str) -> None:
    assert store.put_batch(keys, [b"x"] * len(keys)) == 0


def test_objects_are_removed_by_a_pattern(store: MooncakeDistributedStore) -> None:
    fill(store, "a/1", "a/2", "b/1", "b/22")
    assert store.remove_by_regex("^a/") == 2
    assert store.remove_by_regex("/2") == 1  # anywhere in the key
    assert store.remove_by_regex("nothing") == 0
    assert store.get("b/1") == b"x"  # leased from here on
    assert store.remove_by_regex("b") == 0
    assert store.remove_by_regex("b", force=True) == 1
    assert store.batch_is_exist(["a/1", "a/2", "b/1", "b/22"]) == [0] * 4


@pytest.mark.parametrize("wrong", ["(", "[a", "a{2,1}", "", "x" * 5000])
def test_a_bad_pattern_is_refused(wrong: str, capfd: pytest.CaptureFixture[str]) -> None:
    store = opened("embedded")
    fill(store, "a", "x" * 4000)
    assert store.remove_by_regex(wrong, True) == INVALID
    assert "remove_by_regex" in capfd.readouterr().err
    assert store.remove_all() == 2
    with pytest.raises(TypeError):
        store.remove_by_regex(5)
    store.close()


def test_all_objects_are_removed(store: MooncakeDistributedStore) -> None:
    fill(store, *(f"k{i}" for i in range(5000)))
    assert store.is_exist("k7") == 1
    assert store.remove_all() == 4999
    assert store.remove_all(force=True) == 1
    assert store.remove_all() == 0


def test_a_replica_says_where_it_lies(store: MooncakeDistributedStore) -> None:
    value = bytes(range(256)) * 10
    assert store.put("a", value) == 0
    (replica,) = store.get_replica_desc("a")
    assert replica.status == ReplicaStatus.COMPLETE == names.COMPLETE
    assert replica.is_memory_replica()
    assert not replica.is_disk_replica() and not replica.is_local_disk_replica()
    with pytest.raises(RuntimeError, match="memory"):
        replica.get_disk_descriptor()
    place = replica.get_memory_descriptor().buffer_descriptor
    assert place.size == len(value) and place.transport_endpoint == store.get_hostname()
    # It is this process's own segment.
    assert ctypes.string_at(place.buffer_address, place.size) == value
    assert f"{place.buffer_address:#x}" in repr(place) and str(len(value)) in repr(place)
    assert store.get_replica_desc("absent") == []
    found = store.batch_get_replica_desc(["a", b"a", "absent"])
    assert list(found) == ["a", b"a"] and len(found["a"]) == 1
    assert list(store.batch_get_replica_desc(numpy.array([b"x", b"a"]))) == [b"a"]
    assert store.remove("a") == -706  # it was leased


def test_copies_lie_in_different_segments(live_master: MasterProcess) -> None:
    stores = [opened(live_master.address) for _ in range(2)]
    two = ReplicateConfig()
    two.replica_num = 2
    assert stores[0].put("a", b"x", two) == 0
    hosts = {replica.get_memory_descriptor().buffer_descriptor.transport_endpoint
             for replica in stores[1].get_replica_desc("a")}
    assert hosts == {store.get_hostname() for store in stores}
    one = ReplicateConfig()
    for store in stores:
        one.preferred_segments = [store.get_hostname()]
        assert stores[0].put(store.get_hostname(), b"x", one) == 0
        (replica,) = stores[0].get_replica_desc(store.get_hostname())
        place = replica.get_memory_descriptor().buffer_descriptor
        assert place.transport_endpoint == store.get_hostname()
    for store in stores:
        store.close()


def test_a_descriptor_is_a_value() -> None:
    place = Descriptor()
    assert (place.size, place.buffer_address, place.transport_endpoint) == (0, 0, "")
    place.size, place.buffer_address, place.transport_endpoint = 5, sys.maxsize, "h:1"
    assert repr(place) == "Descriptor(size=5, buffer_address=0x7fffffffffffffff, transport_endpoint='h:1')"


def test_a_store_that_is_not_set_up() -> None:
    store = MooncakeDistributedStore()
    assert store.remove_by_regex("a") == store.remove_all() == INVALID
    assert store.get_replica_desc("a") == [] and store.batch_get_replica_desc(["a"]) == {}
