"""BufferPool under the name of its own that the published package has too."""

from mooncake.store import BufferPool, RegisteredBufferPool

__all__ = ["BufferPool", "RegisteredBufferPool"]
