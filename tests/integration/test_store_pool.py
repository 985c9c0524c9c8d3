"""Proves BufferPool: leases are registered memory, apart from each other, used again, bounded, and
never given to a second owner while a view of the first is alive."""

import gc
import threading

import mooncake.buffer_pool
import numpy
import pytest
from mooncake.store import BufferLease, BufferPool, MooncakeDistributedStore
from store_rig import MEBIBYTE, Counter, opened, random_bytes, timed, together


@pytest.fixture
def pooled():
    store = opened("embedded", local_buffer_size="16MB")
    yield store
    store.close()


def test_a_lease_is_registered_memory(store: MooncakeDistributedStore) -> None:
    pool = BufferPool(store)
    value = random_bytes(100_000)
    with pool.acquire(len(value)) as lease:
        assert isinstance(lease, BufferLease) and lease.size == len(value)
        lease.buffer[:] = value
        assert store.put_from("a", lease.ptr, lease.size) == 0
        with pool.buffer(len(value)) as other:
            assert other.ptr != lease.ptr
            assert store.get_into("a", other.ptr, other.size) == len(value)
            assert other.buffer == value
            assert numpy.frombuffer(other.buffer, "u1").ctypes.data == other.ptr
    pool.close()
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        pool.acquire(1)


def test_memory_is_used_again_and_leases_are_apart(pooled: MooncakeDistributedStore) -> None:
    pool = BufferPool(pooled, min_size_class=4096, alignment=MEBIBYTE)
    leases = [pool.acquire(5000) for _ in range(200)]
    spans = sorted((lease.ptr, lease.ptr + lease.size) for lease in leases)
    assert all(end <= begin for (_, end), (begin, _) in zip(spans, spans[1:]))
    for lease in leases:
        lease.release()
        lease.release()
    assert pool.acquire(8192).ptr in {begin for begin, _ in spans}
    with pytest.raises(RuntimeError, match="released"):
        leases[0].ptr
    with pytest.raises(RuntimeError, match="released"):
        leases[0].buffer
    with pytest.raises(RuntimeError, match="released"):
        leases[0].__enter__()


def test_a_lease_is_not_released_while_views_are_alive(pooled: MooncakeDistributedStore) -> None:
    pool = BufferPool(pooled)
    lease = pool.acquire(100)
    view = lease.buffer
    part = view[10:20]
    array = numpy.frombuffer(lease.buffer, "u1")
    for name in ("view", "part", "array"):
        with pytest.raises(BufferError, match="alive"):
            lease.release()
        assert lease.ptr != 0  # still leased
        view = None if name == "view" else view
        part = None if name == "part" else part
    del view, part, array
    lease.release()
    with pytest.raises(RuntimeError, match="released"):
        lease.ptr


def test_a_dropped_lease_is_used_again_once_its_views_have_ended(
        pooled: MooncakeDistributedStore) -> None:
    pool = BufferPool(pooled, min_size_class=16 * MEBIBYTE)  # room for two
    kept = pool.acquire(16 * MEBIBYTE)
    lease = pool.acquire(16 * MEBIBYTE)
    view = lease.buffer
    del lease
    gc.collect()
    with pytest.raises(RuntimeError, match="no room"):
        pool.acquire(16 * MEBIBYTE, block=False)
    view[0] = 7
    entered = threading.Event()
    got = []

    def wait() -> None:
        entered.set()
        got.append(pool.acquire(16 * MEBIBYTE, timeout=20))

    waiter = threading.Thread(target=wait)
    waiter.start()
    entered.wait()
    del view
    waiter.join()
    assert len(got) == 1
    got[0].release()
    with pytest.raises(RuntimeError, match="1 leases are alive"):
        pool.close()
    kept.release()
    pool.close()


def test_a_pool_is_bounded_and_waits(pooled: MooncakeDistributedStore) -> None:
    pool = BufferPool(pooled, max_bytes=24 * MEBIBYTE, alignment=4 * MEBIBYTE)
    leases = [pool.acquire(4 * MEBIBYTE) for _ in range(6)]  # four are kept, two are not
    with pytest.raises(RuntimeError, match="25165824"):
        pool.acquire(1, block=False)
    _, seconds = timed(lambda: pytest.raises(TimeoutError, pool.acquire, 1, timeout=0.2))
    assert 0.2 <= seconds < 5
    with pytest.raises(ValueError, match="more than"):
        pool.acquire(24 * MEBIBYTE + 1)
    entered = threading.Event()
    with Counter() as counter:
        got = []

        def wait() -> None:
            entered.set()
            got.append(pool.acquire(3 * MEBIBYTE))

        waiter = threading.Thread(target=wait)
        waiter.start()
        entered.wait()
        before = counter.count
        while counter.count < before + 20:  # others run while it waits
            pass
        assert got == []
        leases.pop().release()
        waiter.join()
    assert pooled.put_from("a", got[0].ptr, got[0].size) == 0
    for lease in [*leases, *got]:
        lease.release()
    with pool.acquire(20 * MEBIBYTE):  # idle regions make room for another class
        pass
    pool.close()
    impatient = BufferPool(pooled, max_bytes=16 * MEBIBYTE, block_on_exhaustion=False)
    with impatient.acquire(16 * MEBIBYTE), pytest.raises(RuntimeError):
        impatient.acquire(1)


def test_limits_of_a_pool(pooled: MooncakeDistributedStore) -> None:
    one = BufferPool(pooled, max_regions=1, default_timeout=0.05, min_size_class=100)
    with one.acquire(100) as first, one.acquire(100) as second:
        assert second.ptr - first.ptr in (100, -100)
        with pytest.raises(TimeoutError):
            one.acquire(200)
    with one.acquire(200):
        pass
    exact = BufferPool(pooled, max_size_class=65536)
    with exact.acquire(70000) as large:  # for one lease alone
        where = large.ptr
        assert pooled.put_from("a", where, 70000) == 0
    assert pooled.put_from("b", where, 70000) == -800  # it is registered no more
    warm = BufferPool(pooled, prewarm_size=MEBIBYTE, prewarm_count=5)
    assert len({warm.acquire(MEBIBYTE, block=False).ptr for _ in range(5)}) >= 1
    warm.prewarm(MEBIBYTE, 0)
    with pytest.raises(RuntimeError, match="no room"):
        warm.prewarm(8 * MEBIBYTE, 5)


@pytest.mark.parametrize("arguments", [
    {"max_bytes": -1}, {"min_size_class": 0}, {"max_size_class": 1}, {"alignment": 3},
    {"alignment": 0}, {"max_regions": 0}, {"prewarm_size": 0, "prewarm_count": 1},
    {"prewarm_size": 1, "prewarm_count": -1}])
def test_wrong_arguments_of_a_pool(
        arguments: dict[str, int], pooled: MooncakeDistributedStore) -> None:
    with pytest.raises(ValueError):
        BufferPool(pooled, **arguments)
    pool = BufferPool(pooled)
    for wrong in (0, -1):
        with pytest.raises(ValueError):
            pool.acquire(wrong)
    for wrong in ("1", None, 1.5, True):
        with pytest.raises(TypeError):
            pool.acquire(wrong)


@pytest.mark.parametrize("name", ["max_bytes", "min_size_class", "max_size_class", "alignment",
                                  "max_regions", "prewarm_size", "prewarm_count"])
def test_wrong_types_for_a_pool(name: str, pooled: MooncakeDistributedStore) -> None:
    for wrong in ("much", 1.5, True):
        with pytest.raises(TypeError, match=name.removeprefix("prewarm_")):
            BufferPool(pooled, **{"prewarm_size": 1, name: wrong})


def test_a_pool_needs_a_store_with_a_local_buffer() -> None:
    for store in (None, object(), MooncakeDistributedStore()):
        with pytest.raises(RuntimeError, match="local_buffer_size"):
            BufferPool(store)
    none = opened("embedded", local_buffer_size=0)
    with pytest.raises(RuntimeError, match="local_buffer_size"):
        BufferPool(none)
    none.close()


def test_a_pool_ends_with_its_store() -> None:
    store = opened("embedded")
    pool = BufferPool(store)
    lease = pool.acquire(10)
    lease.buffer[:] = b"0123456789"
    store.close()
    assert lease.buffer == b"0123456789"  # its memory stays
    assert store.setup({"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE",
                        "master_server_addr": "embedded"}) == 0
    with pytest.raises(RuntimeError, match="new pool"):
        pool.acquire(10)
    assert store.put_from("a", lease.ptr, 10) == -800
    lease.release()
    pool.close()
    assert BufferPool(store).acquire(10).size == 10
    store.close()


def test_many_threads_share_a_pool(pooled: MooncakeDistributedStore) -> None:
    pool = BufferPool(pooled, max_bytes=16 * MEBIBYTE, alignment=MEBIBYTE)

    def work(thread: int) -> None:
        for i in range(60):
            size = 1 + (thread * 7919 + i * 104729) % (3 * MEBIBYTE)
            with pool.acquire(size) as lease:
                view = numpy.frombuffer(lease.buffer, "u1")
                view[:: max(1, size // 64)] = thread
                assert (view[:: max(1, size // 64)] == thread).all()
                del view

    together(8, work)
    pool.close()


def test_the_names_of_a_pool() -> None:
    assert mooncake.buffer_pool.BufferPool is mooncake.buffer_pool.RegisteredBufferPool is BufferPool
