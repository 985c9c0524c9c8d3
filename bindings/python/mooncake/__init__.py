"""Mooncake: the KV-cache data plane under LLM serving.

`mooncake.store` is the object store; `python -m mooncake.demo` shows it at work. Importing this
package starts nothing.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "BufferPool":  # of the published package; loads the native library when first used
        from mooncake.store import BufferPool

        return BufferPool
    raise AttributeError(f"module 'mooncake' has no attribute {name!r}")
