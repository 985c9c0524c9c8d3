"""Proves the store for asyncio: each call is awaitable, many run at once while the loop goes on, and a
call that is cancelled touches no memory of the caller's any more."""

import asyncio
import subprocess
import sys
import threading
from typing import Any

import pytest
from conftest import MasterProcess
from mooncake.async_store import MooncakeDistributedStoreAsync
from mooncake.store import MooncakeDistributedStore, ReplicateConfig
from store_rig import INVALID, MISSING, Memory, config, opened, timed


def opened_async(master: str, **others: Any) -> MooncakeDistributedStoreAsync:
    return opened(master, MooncakeDistributedStoreAsync, **others)


def test_each_call_is_awaitable() -> None:
    async def work() -> None:
        store = MooncakeDistributedStoreAsync()
        assert await store.async_put("a", b"x") == INVALID
        assert await store.async_setup(config("embedded")) == 0
        assert await store.async_put("a", b"x") == 0
        assert await store.async_put(key="b", value=b"yy") == 0
        assert await store.async_get_batch(["a", "b", "c"]) == [b"x", b"yy", b""]
        assert await store.async_put_parts("d", b"1", b"2") == 0
        assert store.get("d") == b"12"  # the plain calls are there too
        memory = Memory(store, 10)
        assert await store.async_get_into("d", memory.address, 10) == 2
        with pytest.raises(TypeError):
            await store.async_get(5)
        assert await store.async_close() == 0
        assert await store.async_get("a") == b""
        assert await store.async_setup(config("embedded")) == 0
        assert await store.async_get_size("a") == MISSING
        assert store.close() == 0

    asyncio.run(work())


def test_unknown_names_are_attribute_errors() -> None:
    store = MooncakeDistributedStoreAsync()
    for name in ("async_frobnicate", "async_", "async__session", "async_async_get", "frobnicate",
                 "async___init__"):
        with pytest.raises(AttributeError, match=name):
            getattr(store, name)
        assert not hasattr(store, name)
    assert isinstance(store, MooncakeDistributedStore)
    assert store.async_get.__name__ == "async_get" and "bytes" in store.async_get.__doc__
    with pytest.raises(ValueError):
        MooncakeDistributedStoreAsync(max_workers=0)


def test_c35_each_call_has_the_config_that_it_was_given() -> None:
    async def work() -> None:
        store = opened_async("embedded")
        shared = ReplicateConfig()
        shared.with_hard_pin, shared.group_ids = True, ["first"]
        calls = [store.async_put("pinned", b"1", shared)]
        shared.with_hard_pin, shared.group_ids = False, ["one", "too many"]
        calls.append(store.async_put("refused", b"2", config=shared))
        shared.group_ids = None
        calls.append(asyncio.create_task(store.async_put("plain", b"3", shared)))
        assert await asyncio.gather(*calls) == [0, INVALID, 0]
        assert store.why("pinned")["hard_pinned"] and not store.why("plain")["hard_pinned"]
        assert store.close() == 0

    asyncio.run(work())


def test_many_at_once_on_few_threads() -> None:
    async def work() -> None:
        store = opened_async("embedded")
        before = threading.active_count()
        values = [bytes([i % 251]) * (1 + i) for i in range(1000)]
        puts = [store.async_put(f"{i}", value) for i, value in enumerate(values)]
        assert await asyncio.gather(*puts) == [0] * 1000
        gets = [store.async_get(f"{i}") for i in range(1000)]
        assert await asyncio.gather(*gets) == values
        assert threading.active_count() <= before + 32
        store.close()

    asyncio.run(work())


def test_the_loop_goes_on_and_a_cancelled_question_is_left(live_master: MasterProcess) -> None:
    """The Master is stopped: a get waits, is cancelled, and doesn't keep anybody."""
    store = opened_async(live_master.address, timeout="3s")
    assert store.put("a", b"x") == 0
    with live_master.stopped():
        async def work() -> None:
            waiting = asyncio.create_task(store.async_get("a"))
            for _ in range(100):
                await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

        loop = asyncio.new_event_loop()
        _, seconds = timed(lambda: loop.run_until_complete(work()))
        assert seconds < 2
        loop.close()
    assert store.get("a") == b"x"
    store.close()


class Watched(MooncakeDistributedStoreAsync):
    """Says how many calls are inside put_from()."""

    def __init__(self) -> None:
        super().__init__(max_workers=1)
        self.inside = 0
        self.entered = threading.Event()

    def put_from(self, *arguments: Any) -> int:
        self.inside += 1
        self.entered.set()
        try:
            return super().put_from(*arguments)
        finally:
            self.inside -= 1


def test_a_cancelled_call_with_memory_is_waited_for(live_master: MasterProcess) -> None:
    """What holds the caller's memory ends before CancelledError is raised, or never begins."""
    store = opened(live_master.address, Watched, timeout="1s")
    memory = Memory(store, 1 << 20)
    with live_master.stopped():
        async def work() -> None:
            first = asyncio.create_task(store.async_put_from("first", memory.address, memory.size))
            queued = asyncio.create_task(store.async_put_from("queued", memory.address, 1))
            while not store.entered.is_set():
                await asyncio.sleep(0)
            queued.cancel()
            with pytest.raises(asyncio.CancelledError):
                await queued
            assert store.inside == 1 and not first.done()
            first.cancel()
            await asyncio.sleep(0)
            first.cancel()  # once more changes nothing
            with pytest.raises(asyncio.CancelledError):
                await first
            assert store.inside == 0

        _, seconds = timed(lambda: asyncio.run(work()))
        assert seconds < 4
        memory.end()
    assert store.is_exist("queued") == 0
    store.close()


def test_close_ends_calls_under_way(live_master: MasterProcess) -> None:
    store = opened_async(live_master.address, timeout="30s")

    async def work() -> None:
        calls = [asyncio.create_task(store.async_put(f"{i}", b"x" * 1000)) for i in range(200)]
        await asyncio.sleep(0)
        live_master.kill()
        assert await store.async_close() == 0
        codes = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(code, int) for code in codes), codes

    _, seconds = timed(lambda: asyncio.run(work()))
    assert seconds < 5


def test_a_forked_child_has_workers_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", """
import asyncio, os, sys
from mooncake.async_store import MooncakeDistributedStoreAsync
store = MooncakeDistributedStoreAsync()
settings = {"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE",
            "master_server_addr": "embedded"}
async def use():
    assert await store.async_put("a", b"x") == 0
    return await store.async_get("a")
assert store.setup(settings) == 0
assert asyncio.run(use()) == b"x"
child = os.fork()
if child == 0:
    assert asyncio.run(store.async_get("a")) == b""
    assert store.setup(settings) == 0 and asyncio.run(use()) == b"x"
    sys.exit(store.close())
assert os.waitpid(child, 0)[1] == 0
assert asyncio.run(use()) == b"x"
"""], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
