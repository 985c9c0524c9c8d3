"""MooncakeDistributedStoreAsync: the store for asyncio."""

import asyncio
import copy
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Optional

from mooncake.store import MooncakeDistributedStore, ReplicateConfig

# Calls that touch no memory of the caller's: nobody need wait for their end.
_OWN_MEMORY = frozenset({
    "batch_exist_outcomes", "batch_get_buffer", "batch_get_outcomes", "batch_get_replica_desc",
    "batch_is_exist", "batch_remove", "get", "get_batch", "get_buffer", "get_hostname",
    "get_pinned", "get_replica_desc", "get_size", "health_check", "is_exist", "remove",
    "remove_all", "remove_by_regex", "why"})  # fmt: skip


class MooncakeDistributedStoreAsync(MooncakeDistributedStore):
    """A MooncakeDistributedStore whose every method `name` has an awaitable `async_name` beside it.

    At most `max_workers` of these run at a time, each on a thread of the store's own; others wait for
    their turn, with the ReplicateConfig that they were called with. One that is cancelled before its turn does nothing. One that is under way goes on: a
    call that reads or writes memory of the caller's is waited for, which ends by its deadline, so that
    nobody touches that memory after CancelledError; any other is left alone at once."""

    def __init__(self, max_workers: int = 32) -> None:
        super().__init__()
        if max_workers < 1:
            raise ValueError(f"max_workers: {max_workers} is below 1")
        self._max_workers = max_workers
        self._executor: Optional[ThreadPoolExecutor] = None
        self._process = 0  # that the executor's threads are in

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        plain = name.removeprefix("async_")
        method = getattr(type(self), plain, None)
        if plain == name or plain.startswith("_") or not callable(method):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        async def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if plain == "close":  # ends the calls under way, so that it can't wait for a thread
                with ThreadPoolExecutor(1) as executor:
                    return await _outcome(executor.submit(self.close))
            return await _outcome(
                self._workers().submit(method, self, *args, **kwargs), plain in _OWN_MEMORY
            )

        def call(*args: Any, **kwargs: Any) -> Awaitable[Any]:
            kept = {key: _as_it_is(value) for key, value in kwargs.items()}
            return run(tuple(map(_as_it_is, args)), kept)

        call.__name__ = call.__qualname__ = name
        call.__doc__ = method.__doc__
        return call

    def close(self) -> int:
        code = super().close()
        executor, self._executor = self._executor, None
        if executor is not None and self._process == os.getpid():
            executor.shutdown(wait=False)
        return code

    def _workers(self) -> ThreadPoolExecutor:
        if self._executor is None or self._process != os.getpid():
            self._executor = ThreadPoolExecutor(self._max_workers, "mooncake-store")
            self._process = os.getpid()
        return self._executor


def _as_it_is(argument: Any) -> Any:
    return copy.copy(argument) if isinstance(argument, ReplicateConfig) else argument


async def _outcome(call: "Future[Any]", may_be_left: bool = False) -> Any:
    waiting = asyncio.wrap_future(call)
    if may_be_left:
        return await waiting
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        if not call.cancel():
            await _end(waiting)
        raise


async def _end(waiting: "asyncio.Future[Any]") -> None:
    """Until it is done, however often we are cancelled."""
    while not waiting.done():
        try:
            await asyncio.wait([waiting])
        except asyncio.CancelledError:
            continue
    if not waiting.cancelled():
        waiting.exception()  # retrieved: nobody else will


__all__ = ["MooncakeDistributedStoreAsync"]
