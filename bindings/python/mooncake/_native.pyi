"""Types of the native module. The words are in the docstrings: help(MooncakeDistributedStore),
help(TransferEngine)."""

import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, SupportsIndex, overload

if sys.version_info >= (3, 12):
    from collections.abc import Buffer
else:
    from typing_extensions import Buffer

class ReplicateConfig:
    def __init__(self) -> None: ...
    replica_num: int

class MooncakeDistributedStore:
    def __init__(self) -> None: ...
    @overload
    def setup(
        self,
        local_hostname: str,
        metadata_server: str,
        global_segment_size: SupportsIndex,
        local_buffer_size: SupportsIndex,
        protocol: str,
        rdma_devices: str,
        master_server_addr: str,
        engine: None = None,
        enable_ssd_offload: bool = False,
        ssd_offload_path: str = "",
        tenant_id: str = "default",
        enable_client_http_server: bool = False,
        client_http_port: SupportsIndex = 9300,
    ) -> int: ...
    @overload
    def setup(self, config: dict[str, Any]) -> int: ...
    def put(
        self, key: str | bytes, value: Buffer, config: ReplicateConfig | None = None
    ) -> int: ...
    def get(self, key: str | bytes) -> bytes: ...
    def is_exist(self, key: str | bytes) -> int: ...
    def remove(self, key: str | bytes, force: bool = False) -> int: ...
    def close(self) -> int: ...

SUPPORT_CUDA: bool
SUPPORT_EFA: bool
SUPPORT_HIP: bool
SUPPORT_INTRA_NVLINK: bool
SUPPORT_MNNVL: bool
SUPPORT_MUSA: bool

class TransferOpcode(IntEnum):
    Read = 0
    Write = 1
    READ = 0
    WRITE = 1

Read: TransferOpcode
Write: TransferOpcode

class TransferNotify:
    @overload
    def __init__(self) -> None: ...
    @overload
    def __init__(self, name: str, msg: str) -> None: ...
    name: str
    msg: str

class InnerTransferEngine: ...

# A sequence of ints, or an array of int64 or uint64 with one dimension (Buffer or DLPack).
Integers = Sequence[SupportsIndex] | Buffer | Any

class TransferEngine:
    TransferOpcode = TransferOpcode
    def __init__(self) -> None: ...
    def initialize(
        self, local_hostname: str, metadata_server: str, protocol: str, device_name: str, /
    ) -> int: ...
    def initialize_ext(
        self,
        local_hostname: str,
        metadata_server: str,
        protocol: str,
        device_name: str,
        metadata_type: str,
        /,
    ) -> int: ...
    def get_rpc_port(self) -> int: ...
    def get_engine(self) -> InnerTransferEngine | None: ...
    def get_engine_ptr(self) -> int: ...
    def register_memory(
        self, buffer_addr: SupportsIndex, capacity: SupportsIndex, location: str = "*"
    ) -> int: ...
    def unregister_memory(self, buffer_addr: SupportsIndex, /) -> int: ...
    def batch_register_memory(
        self, buffer_addresses: Integers, capacities: Integers, location: str = "*"
    ) -> int: ...
    def batch_unregister_memory(self, buffer_addresses: Integers, /) -> int: ...
    def allocate_managed_buffer(self, length: SupportsIndex, /) -> int: ...
    def free_managed_buffer(
        self, buffer_addr: SupportsIndex, length: SupportsIndex, /
    ) -> int: ...
    def get_first_buffer_address(self, segment_name: str, /) -> int: ...
    def transfer_sync_write(
        self,
        target_hostname: str,
        buffer: SupportsIndex,
        peer_buffer_address: SupportsIndex,
        length: SupportsIndex,
        transport_hint: str = "",
    ) -> int: ...
    def transfer_sync_read(
        self,
        target_hostname: str,
        buffer: SupportsIndex,
        peer_buffer_address: SupportsIndex,
        length: SupportsIndex,
        transport_hint: str = "",
    ) -> int: ...
    def transfer_sync(
        self,
        target_hostname: str,
        buffer: SupportsIndex,
        peer_buffer_address: SupportsIndex,
        length: SupportsIndex,
        opcode: TransferOpcode,
        notify: TransferNotify | None = None,
        transport_hint: str = "",
    ) -> int: ...
    def batch_transfer_sync_write(
        self,
        target_hostname: str,
        buffers: Integers,
        peer_buffer_addresses: Integers,
        lengths: Integers,
        transport_hint: str = "",
    ) -> int: ...
    def batch_transfer_sync_read(
        self,
        target_hostname: str,
        buffers: Integers,
        peer_buffer_addresses: Integers,
        lengths: Integers,
        transport_hint: str = "",
    ) -> int: ...
    def batch_transfer_sync(
        self,
        target_hostname: str,
        buffers: Integers,
        peer_buffer_addresses: Integers,
        lengths: Integers,
        opcode: TransferOpcode,
        notify: TransferNotify | None = None,
        transport_hint: str = "",
    ) -> int: ...
    def batch_transfer_async_write(
        self,
        target_hostname: str,
        buffers: Integers,
        peer_buffer_addresses: Integers,
        lengths: Integers,
        transport_hint: str = "",
    ) -> int: ...
    def batch_transfer_async_read(
        self,
        target_hostname: str,
        buffers: Integers,
        peer_buffer_addresses: Integers,
        lengths: Integers,
        transport_hint: str = "",
    ) -> int: ...
    def batch_transfer_async(
        self,
        target_hostname: str,
        buffers: Integers,
        peer_buffer_addresses: Integers,
        lengths: Integers,
        opcode: TransferOpcode,
        transport_hint: str = "",
    ) -> int: ...
    def get_batch_transfer_status(self, batch_ids: Integers, /) -> int: ...
    def transfer_submit_write(
        self,
        target_hostname: str,
        buffer: SupportsIndex,
        peer_buffer_address: SupportsIndex,
        length: SupportsIndex,
        transport_hint: str = "",
    ) -> int: ...
    def transfer_check_status(self, batch_id: SupportsIndex, /) -> int: ...
    def write_bytes_to_buffer(
        self, dest_address: SupportsIndex, source: Buffer | str, length: SupportsIndex, /
    ) -> int: ...
    def read_bytes_from_buffer(
        self, source_address: SupportsIndex, length: SupportsIndex, /
    ) -> bytes: ...
    def get_notifies(self) -> list[TransferNotify]: ...
    def send_notify(self, target_hostname: str, name: str, msg: str) -> int: ...
    def send_probe(self, peer_server_name: str) -> int: ...
    def warmup_efa_segment(self, segment_name: str) -> int: ...
