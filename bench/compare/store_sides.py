"""One adapter per store. It makes calls that are ready to be timed, and reads their answers.

Shapes are (operation, api, size, batch): operation put, get, hot (get of one key) or exist; api
`into` (from and into registered memory) or `bytes`; size of an object; keys of one call.
"""

from collections import namedtuple
from functools import partial

from sides import MooncakeSide

MIB = 1 << 20
LOCAL_BUFFER = 64 * MIB  # through which the stock package moves values of `put` and `get`

Shape = namedtuple("Shape", "operation api size batch")


class MooncakeStore:
    """Ours and the stock package: the same calls, only the import path differs."""

    gives_values = False  # but for the calls of api `bytes`
    ONE = {("put", "into"): "put_from", ("put", "bytes"): "put",
           ("get", "into"): "get_into", ("get", "bytes"): "get"}
    MANY = {("put", "into"): "batch_put_from", ("get", "into"): "batch_get_into"}

    def __init__(self, master, segment):
        from mooncake.store import MooncakeDistributedStore

        self.store = MooncakeDistributedStore()
        code = self.store.setup("127.0.0.1", "P2PHANDSHAKE", segment, LOCAL_BUFFER, "tcp", "",
                                master)
        if code != 0:
            raise SystemExit(f"setup with a segment of {segment} bytes at {master} gave {code}")

    def lend(self, address, size):
        """The memory from and into which objects will go."""
        self.address = address
        register = getattr(self.store, "register_buffer", None)
        if register and register(address, size) != 0:
            raise SystemExit(f"register_buffer of {size} bytes failed")

    def method(self, shape):
        if shape.operation == "exist":
            return "batch_is_exist"
        operation = "get" if shape.operation == "hot" else shape.operation
        return (self.ONE if shape.batch == 1 else self.MANY)[operation, shape.api]

    def lacks(self, shape):
        """The name of the call that this shape needs and the package does not have."""
        name = self.method(shape)
        return None if hasattr(self.store, name) else name

    def call(self, shape, keys, offsets, value):
        """A call without arguments; `value(offset)` is a value as bytes."""
        call = getattr(self.store, self.method(shape))
        if shape.operation == "exist":
            return partial(call, keys)
        if shape.api == "bytes":
            values = [value(offsets[0])] if shape.operation == "put" else []
            return partial(call, keys[0], *values)
        places = [self.address + offset for offset in offsets]
        if shape.batch == 1:
            return partial(call, keys[0], places[0], shape.size)
        return partial(call, keys, places, [shape.size] * shape.batch)

    def answers(self, shape, raw):
        """One for each key: a code, a length, 0 or 1, or the value itself."""
        many = shape.batch > 1 or shape.operation == "exist"
        return list(raw) if many else [raw]

    def remove(self, keys):
        many = getattr(self.store, "batch_remove", None)
        codes = many(keys, True) if many else [self.store.remove(key, True) for key in keys]
        if any(codes):
            raise RuntimeError(f"removing {len(keys)} keys gave {sorted(set(codes))}")


class RedisStore:
    """Redis through its Python client with hiredis; it knows values as bytes only."""

    gives_values = True

    def __init__(self, server, _):
        import redis

        host, _, port = server.rpartition(":")
        self.redis = redis.Redis(host, int(port), socket_timeout=30, single_connection_client=True)
        self.redis.ping()

    def lend(self, address, size):
        pass

    def lacks(self, shape):
        return None

    def call(self, shape, keys, offsets, value):
        if shape.operation == "exist":
            return partial(self.exist, keys)
        if shape.operation == "put":
            if shape.batch == 1:
                return partial(self.redis.set, keys[0], value(offsets[0]))
            return partial(self.redis.mset, dict(zip(keys, map(value, offsets))))
        return partial(self.redis.get, keys[0]) if shape.batch == 1 else partial(
            self.redis.mget, keys)

    def exist(self, keys):
        """An answer for each key, as the others give; EXISTS with many keys would only count."""
        pipeline = self.redis.pipeline(transaction=False)
        for key in keys:
            pipeline.exists(key)
        return pipeline.execute()

    def answers(self, shape, raw):
        if shape.operation == "put":
            return [0 if raw else -1] * shape.batch
        return list(raw) if shape.batch > 1 or shape.operation == "exist" else [raw]

    def remove(self, keys):
        removed = self.redis.delete(*keys)
        if removed != len(keys):
            raise RuntimeError(f"removing {len(keys)} keys removed {removed}")


class BareTransfer:
    """What a store could reach: our Transfer Engine moves the same bytes, and asks nobody where to."""

    gives_values = False

    def __init__(self, server, segment):
        self.side = MooncakeSide("own")
        if segment:
            managed = self.side.engine.allocate_managed_buffer(segment)
            self.place = f"127.0.0.1:{self.side.engine.get_rpc_port()}/{managed}/{segment}"
            return
        self.peer, there, size = server.rsplit("/", 2)
        self.there, self.size = int(there), int(size)
        self.used = 0
        self.places = {}  # by key; one after the other, and from the start again

    def lend(self, address, size):
        if self.side.register(address, size) != 0:
            raise SystemExit(f"register_memory of {size} bytes failed")
        self.side.connect({"name": self.peer, "address": self.there}, address, size)

    def lacks(self, shape):
        return None if shape.api == "into" and shape.operation in ("put", "get") else "such call"

    def new_place(self, size):
        if self.used + size > self.size:
            self.used = 0
        self.used += size
        return self.there + self.used - size

    def call(self, shape, keys, offsets, value):
        if shape.operation == "put":
            self.places |= {key: self.new_place(shape.size) for key in keys}
        operation = "write" if shape.operation == "put" else "read"
        there = [self.places[key] for key in keys]
        return self.side.prepare(operation, offsets, shape.size, there)

    def answers(self, shape, raw):
        good = 0 if shape.operation == "put" else shape.size
        return [good if raw == 0 else raw] * shape.batch

    def remove(self, keys):
        for key in keys:
            del self.places[key]


STORES = {"mooncake": MooncakeStore, "redis": RedisStore, "transfer": BareTransfer}


def open_store(kind, server, segment):
    return STORES[kind](server, segment)
