"""One adapter per peer. A side registers one region and moves slots between it and another side's."""

import ctypes
import os
import sys
import types


class MooncakeSide:
    """Ours and the stock package: the same calls, only the import path differs."""

    def __init__(self, memory):
        from mooncake.engine import TransferEngine

        self.engine = TransferEngine()
        if self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") != 0:
            raise RuntimeError("initialize failed")
        self.memory = memory
        self.keep = []

    def allocate(self, size):
        if self.memory == "managed":
            address = self.engine.allocate_managed_buffer(size)
            if not address:
                raise RuntimeError(f"no managed buffer of {size} bytes")
            return address
        address = map_private(self.keep, size)
        if self.engine.register_memory(address, size) != 0:
            raise RuntimeError("register_memory failed")
        return address

    def describe(self, address, size):
        return {"name": f"127.0.0.1:{self.engine.get_rpc_port()}", "address": address}

    def connect(self, peer, address, size):
        self.peer = peer["name"]
        self.here, self.there = address, peer["address"]

    def prepare(self, operation, offsets, length, there=None):
        """What one call needs; made outside of the measured time. `there`: addresses at the peer."""
        here = [self.here + offset for offset in offsets]
        there = there or [self.there + offset for offset in offsets]
        if len(offsets) == 1:
            call = (self.engine.transfer_sync_write if operation == "write"
                    else self.engine.transfer_sync_read)
            return lambda: call(self.peer, here[0], there[0], length)
        call = (self.engine.batch_transfer_sync_write if operation == "write"
                else self.engine.batch_transfer_sync_read)
        lengths = [length] * len(offsets)
        return lambda: call(self.peer, here, there, lengths)

    def path(self):
        paths = getattr(self.engine, "bytes_by_path", None)
        return paths() if paths else {}

    def register(self, address, size):
        return self.engine.register_memory(address, size)

    def unregister(self, address):
        return self.engine.unregister_memory(address)


class NixlSide:
    """NIXL with its UCX back end; each call posts a prepared request and polls it to its end."""

    def __init__(self, memory):
        # The package imports torch for tensors, which are not used here.
        torch = types.ModuleType("torch")
        torch.Tensor, torch.dtype = type("Tensor", (), {}), object
        sys.modules.setdefault("torch", torch)
        from nixl_cu12._api import nixl_agent, nixl_agent_config

        self.agent = nixl_agent(f"agent-{os.getpid()}", nixl_agent_config(backends=["UCX"]))
        self.keep = []

    def allocate(self, size):
        address = map_private(self.keep, size)
        self.agent.register_memory([(address, size, 0, "")], "DRAM")
        return address

    def describe(self, address, size):
        return {"name": self.agent.get_agent_metadata().hex(), "address": address}

    def connect(self, peer, address, size):
        self.peer = self.agent.add_remote_agent(bytes.fromhex(peer["name"]))
        if isinstance(self.peer, bytes):
            self.peer = self.peer.decode()
        self.here, self.there = address, peer["address"]

    def prepare(self, operation, offsets, length):
        local = self.agent.get_xfer_descs([(self.here + o, length, 0) for o in offsets], "DRAM")
        remote = self.agent.get_xfer_descs([(self.there + o, length, 0) for o in offsets], "DRAM")
        handle = self.agent.initialize_xfer(operation.upper(), local, remote, self.peer)

        def call():
            state = self.agent.transfer(handle)
            while state == "PROC":
                state = self.agent.check_xfer_state(handle)
            return 0 if state == "DONE" else -1

        return call

    def path(self):
        return {"ucx " + os.environ.get("UCX_TLS", "auto"): 1}


def map_private(keep, size):
    """Private pages of this process, as any allocator gives them; all present."""
    import mmap

    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    ctypes.memset(address, 1, size)
    keep.append(memory)
    return address


def open_side(kind, memory):
    return NixlSide(memory) if kind == "nixl" else MooncakeSide(memory)
