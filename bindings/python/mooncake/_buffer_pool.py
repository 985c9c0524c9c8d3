"""BufferPool: registered memory to be used again and again with a store's calls on addresses."""

import mmap
import threading
import time
from types import TracebackType
from typing import Any, Optional

from mooncake._native import BufferLeaseView, MooncakeDistributedStore

_PAGE = mmap.PAGESIZE
_LOOK = 0.05  # seconds
_POPULATE = 23  # MADV_POPULATE_WRITE, since Linux 5.14


def _round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _size(name: str, value: Any, least: int = 0) -> int:
    """An int of at least `least`; no bool."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: an int is needed, not {type(value).__name__}")
    number = value.__index__()
    if number < least:
        raise ValueError(f"{name}: {number} is below {least}")
    return number


class _Region:
    """One registered piece of memory, cut into slots of one size."""

    def __init__(self, store: Any, slot: int, size: int, alignment: int, kept: bool) -> None:
        self.slot = slot
        self.size = size
        self.kept = kept
        spare = alignment if alignment > _PAGE else 0
        self.memory = mmap.mmap(-1, size + spare, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        base = BufferLeaseView(self.memory, 0, size)._address
        self.offset = -base % alignment if spare else 0
        self.address = base + self.offset
        if spare and hasattr(mmap, "MADV_HUGEPAGE"):
            try:
                self.memory.madvise(mmap.MADV_HUGEPAGE)
            except OSError:
                pass  # a kernel without huge pages: small ones do
        code = store.register_buffer(self.address, size)
        if code != 0:
            raise RuntimeError(f"BufferPool: the store refused {size} bytes (code {code})")
        self.free = list(range(size // slot))

    def view(self, number: int, size: int) -> BufferLeaseView:
        return BufferLeaseView(self.memory, self.offset + number * self.slot, size)

    def idle(self) -> bool:
        return len(self.free) == self.size // self.slot

    def populate(self, number: int) -> None:
        """Makes a slot's pages present; where the kernel can't, the first use does."""
        try:
            first = (self.offset + number * self.slot) // _PAGE * _PAGE
            self.memory.madvise(_POPULATE, first, _round_up(self.slot, _PAGE))
        except (OSError, ValueError):
            pass


class BufferLease:
    """Memory out of a BufferPool, until it is released. A context manager, which releases it.

    One that is dropped gives its memory back once no view of it is alive."""

    def __init__(self, pool: "BufferPool", region: _Region, number: int, size: int) -> None:
        self._pool = pool
        self._region = region
        self._number = number
        self._view: Optional[BufferLeaseView] = region.view(number, size)
        self._size = size

    def _live(self) -> BufferLeaseView:
        if self._view is None:
            raise RuntimeError("BufferLease: it has been released")
        return self._view

    @property
    def ptr(self) -> int:
        """Address of the first byte, inside registered memory. RuntimeError once released."""
        return self._live()._address

    @property
    def size(self) -> int:
        """Bytes, as asked for."""
        return self._size

    @property
    def buffer(self) -> memoryview:
        """A new writable memoryview of `size` bytes. RuntimeError once released."""
        return self._live().buffer

    def release(self) -> None:
        """release(self: mooncake.store.BufferLease) -> None

        Gives the memory back to the pool; again, it does nothing. BufferError while a view of
        `buffer` is alive: release or drop that first."""
        self._pool._give_back(self)

    def __enter__(self) -> "BufferLease":
        """__enter__(self: mooncake.store.BufferLease) -> mooncake.store.BufferLease"""
        self._live()
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        """__exit__(self: mooncake.store.BufferLease, arg0: object, arg1: object, arg2: object) -> None"""
        self.release()

    def __del__(self) -> None:
        if getattr(self, "_view", None) is not None:
            self._pool._abandon(self)


class BufferPool:
    """Leases of registered memory for the calls of a store that take addresses. Any thread.

    Buffers come in classes of size, powers of two, and are cut from registered regions that are kept
    until close(): as many as fit into the store's local_buffer_size. What goes beyond, up to
    `max_bytes`, and what is larger than `max_size_class`, is registered for one lease alone."""

    def __init__(
        self,
        store: MooncakeDistributedStore,
        max_bytes: int = 0,
        min_size_class: int = 65536,
        max_size_class: Optional[int] = None,
        alignment: int = 8388608,
        block_on_exhaustion: bool = True,
        default_timeout: Optional[float] = None,
        max_regions: Optional[int] = None,
        prewarm_size: Optional[int] = None,
        prewarm_count: int = 0,
    ) -> None:
        """__init__(self: mooncake.store.BufferPool, store: object, max_bytes: int = 0, min_size_class: int = 65536, max_size_class: object = None, alignment: int = 8388608, block_on_exhaustion: bool = True, default_timeout: object = None, max_regions: object = None, prewarm_size: object = None, prewarm_count: int = 0) -> None

        store                a MooncakeDistributedStore that is set up, with a local_buffer_size
                             (RuntimeError otherwise); the pool ends with the store's close()
        max_bytes            bytes of all regions; 0 = twice local_buffer_size, which it is never below
        min_size_class       bytes of the smallest class
        max_size_class       bytes of the largest class; None = no bound
        alignment            bytes, a power of two: where regions begin, and what their size is a
                             multiple of
        block_on_exhaustion  whether acquire() waits for room, unless it is told
        default_timeout      seconds that it waits, unless it is told; None = for ever
        max_regions          most regions at a time; None = no bound
        prewarm_size, prewarm_count
                             what to prewarm() at once
        """
        self._closed = True  # until all is in order
        self._changed = threading.Condition()
        self._local = getattr(store, "_local_buffer_size", 0)
        if self._local == 0:
            raise RuntimeError(
                "BufferPool: a MooncakeDistributedStore is needed that is set up, with a "
                "local_buffer_size above 0"
            )
        self._store = store
        self._session = store._session
        wanted = _size("max_bytes", max_bytes)
        self._limit = max(wanted, self._local) if wanted else 2 * self._local
        self._smallest = _size("min_size_class", min_size_class, 1)
        self._largest = None
        if max_size_class is not None:
            self._largest = _size("max_size_class", max_size_class, self._smallest)
        self._alignment = _size("alignment", alignment, 1)
        if self._alignment & (self._alignment - 1):
            raise ValueError(f"alignment: {alignment} is no power of two")
        self._blocks = bool(block_on_exhaustion)
        self._timeout = default_timeout
        self._most_regions = None
        if max_regions is not None:
            self._most_regions = _size("max_regions", max_regions, 1)
        self._regions: list[_Region] = []
        self._leases = 0
        self._abandoned: list[tuple[BufferLeaseView, _Region, int]] = []
        self._closed = False
        if prewarm_size is not None:
            self.prewarm(prewarm_size, prewarm_count)

    def acquire(
        self, size: int, block: Optional[bool] = None, timeout: Optional[float] = None
    ) -> BufferLease:
        """acquire(self: mooncake.store.BufferPool, size: int, block: object = None, timeout: object = None) -> mooncake.store.BufferLease

        A lease of `size` bytes, at least 1, whose contents are undefined.

        block    whether to wait for room; None = block_on_exhaustion
        timeout  seconds to wait at most; None = default_timeout

        ValueError for more than the pool may hold; RuntimeError when there is no room and it does
        not wait, or when the pool or its store is closed; TimeoutError when the wait has ended."""
        wanted = _size("size", size, 1)
        if _round_up(wanted, _PAGE) > self._limit:
            raise ValueError(f"size: {wanted} bytes are more than the pool may hold, {self._limit}")
        waits = self._blocks if block is None else bool(block)
        seconds = self._timeout if timeout is None else timeout
        until = None if seconds is None else time.monotonic() + seconds
        with self._changed:
            while True:
                self._check_open()
                self._collect()
                place = self._place(wanted)
                if place is not None:
                    region, number = place
                    self._leases += 1
                    return BufferLease(self, region, number, wanted)
                if not waits:
                    raise RuntimeError(f"BufferPool: no room for {wanted} bytes: {self._use()}")
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(
                        f"BufferPool: no room for {wanted} bytes within {seconds} s: {self._use()}"
                    )
                if self._abandoned:  # nobody says when their views end
                    left = _LOOK if left is None else min(left, _LOOK)
                self._changed.wait(left)

    def buffer(
        self, size: int, block: Optional[bool] = None, timeout: Optional[float] = None
    ) -> BufferLease:
        """buffer(self: mooncake.store.BufferPool, size: int, block: object = None, timeout: object = None) -> mooncake.store.BufferLease

        The same as acquire()."""
        return self.acquire(size, block, timeout)

    def prewarm(self, size: int, count: int) -> None:
        """prewarm(self: mooncake.store.BufferPool, size: int, count: int) -> None

        Makes `count` buffers for `size` bytes ready, so that their first use costs no registration
        and no page faults. RuntimeError when they don't fit beside what is leased."""
        size = _size("size", size, 1)
        leases = [self.acquire(size, block=False) for _ in range(_size("count", count))]
        for lease in leases:
            lease._region.populate(lease._number)
            lease.release()

    def close(self) -> None:
        """close(self: mooncake.store.BufferPool) -> None

        Gives all memory back; again, it does nothing. RuntimeError while leases are alive."""
        with self._changed:
            if self._closed:
                return
            self._collect()
            if self._leases:
                raise RuntimeError(f"BufferPool: {self._leases} leases are alive; release them first")
            self._closed = True
            while self._regions:
                self._drop(self._regions[-1])
            self._changed.notify_all()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.close()  # no lease is alive: each holds its pool

    # All below under self._changed.

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("BufferPool: it is closed")
        if self._store._session != self._session:
            raise RuntimeError("BufferPool: its store has been closed; make a new pool after setup()")

    def _class_of(self, size: int) -> Optional[int]:
        """Bytes of the slots for this size; None where no such region is kept."""
        slot = self._smallest
        while slot < size:
            slot *= 2
        return slot if self._largest is None or slot <= self._largest else None

    def _place(self, size: int) -> Optional[tuple[_Region, int]]:
        """A free slot, of a region that is there or of a new one; None when there is no room."""
        slot = self._class_of(size)
        for region in self._regions:
            if region.kept and region.slot == slot and region.free:
                return region, region.free.pop()
        whole = 0 if slot is None else _round_up(slot, self._alignment)
        if slot is not None and self._make_room(whole, self._local):
            region = _Region(self._store, slot, whole, self._alignment, kept=True)
        else:
            whole = _round_up(size, _PAGE)
            if not self._make_room(whole, self._limit):
                return None
            region = _Region(self._store, whole, whole, _PAGE, kept=False)
        self._regions.append(region)
        return region, region.free.pop()

    def _make_room(self, size: int, bound: int) -> bool:
        """Whether `size` bytes more stay within the bound; drops idle regions for that."""

        def fits(dropped: list[_Region]) -> bool:
            held = sum(region.size for region in self._regions if region not in dropped)
            number = len(self._regions) - len(dropped)
            few = self._most_regions is None or number < self._most_regions
            return few and held + size <= bound

        dropped: list[_Region] = []
        for region in [None, *(region for region in self._regions if region.idle())]:
            if region is not None:
                dropped.append(region)
            if fits(dropped):
                for one in dropped:
                    self._drop(one)
                return True
        return False

    def _drop(self, region: _Region) -> None:
        self._regions.remove(region)
        if self._store._session == self._session:
            if self._store.unregister_buffer(region.address) not in (0, -800):
                _stuck.append(region)  # somebody still copies: it stays mapped for good

    def _free(self, region: _Region, number: int) -> None:
        region.free.append(number)
        self._leases -= 1
        if not region.kept and region in self._regions:
            self._drop(region)
        self._changed.notify_all()

    def _collect(self) -> None:
        """Takes the memory back of leases that were dropped, and whose views have ended since."""
        dropped, self._abandoned = self._abandoned, []
        for view, region, number in dropped:
            if view._views:
                self._abandoned.append((view, region, number))
            else:
                self._free(region, number)

    def _use(self) -> str:
        held = sum(region.size for region in self._regions)
        return f"{self._leases} leases, {held} bytes registered of {self._limit}"

    def _give_back(self, lease: BufferLease) -> None:
        with self._changed:
            view = lease._view
            if view is None:
                return
            if view._views:
                raise BufferError(
                    f"BufferLease: {view._views} views of its buffer are alive; release them first"
                )
            lease._view = None
            self._free(lease._region, lease._number)

    def _abandon(self, lease: BufferLease) -> None:
        # By the collector, perhaps within a call of this thread on the pool, whose lock it has.
        with self._changed:
            view, lease._view = lease._view, None
            if view is not None:
                self._abandoned.append((view, lease._region, lease._number))
                self._changed.notify_all()


_stuck: list[_Region] = []

for _type in (BufferLease, BufferPool):
    _type.__module__ = "mooncake.store"
