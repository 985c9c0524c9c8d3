"""Types of the native module. The words are in the docstrings: help(MooncakeDistributedStore),
help(TransferEngine)."""

import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NoReturn, SupportsIndex, overload

if sys.version_info >= (3, 12):
    from collections.abc import Buffer
else:
    from typing_extensions import Buffer

__version__: str
PROTOCOLS: tuple[str, ...]
SERVED_PROTOCOLS: tuple[str, ...]
MAX_KEY_BYTES: int
MAX_REPLICAS: int

class SoftPinAction(IntEnum):
    PRESERVE = 0
    ENABLE = 1
    DISABLE = 2

class ObjectDataType(IntEnum):
    UNKNOWN = 0
    KVCACHE = 1
    TENSOR = 2
    WEIGHT = 3
    SAMPLE = 4
    ACTIVATION = 5
    GRADIENT = 6
    OPTIMIZER_STATE = 7
    METADATA = 8
    GENERAL = 9

UNKNOWN: ObjectDataType
KVCACHE: ObjectDataType
TENSOR: ObjectDataType
WEIGHT: ObjectDataType
SAMPLE: ObjectDataType
ACTIVATION: ObjectDataType
GRADIENT: ObjectDataType
OPTIMIZER_STATE: ObjectDataType
METADATA: ObjectDataType
GENERAL: ObjectDataType

class ReplicateConfig:
    def __init__(self) -> None: ...
    def __copy__(self) -> ReplicateConfig: ...
    def __deepcopy__(self, memo: dict[int, Any], /) -> ReplicateConfig: ...
    replica_num: int
    nof_replica_num: int
    dfs_replica_num: int
    soft_pin_action: SoftPinAction
    soft_pin_ttl_ms: int | None
    with_hard_pin: bool
    with_soft_pin: bool
    preferred_segments: list[str]
    preferred_segment: str
    preferred_nof_segments: list[str]
    prefer_alloc_in_same_node: bool
    data_type: ObjectDataType
    group_ids: list[str] | None

class ReplicaStatus(IntEnum):
    UNDEFINED = 0
    INITIALIZED = 1
    PROCESSING = 2
    COMPLETE = 3
    REMOVED = 4
    FAILED = 5

UNDEFINED: ReplicaStatus
INITIALIZED: ReplicaStatus
PROCESSING: ReplicaStatus
COMPLETE: ReplicaStatus
REMOVED: ReplicaStatus

class Descriptor:
    def __init__(self) -> None: ...
    size: int
    buffer_address: int
    transport_endpoint: str

class MemoryDescriptor:
    @property
    def buffer_descriptor(self) -> Descriptor: ...

class ReplicaDescriptor:
    @property
    def status(self) -> ReplicaStatus: ...
    def is_memory_replica(self) -> bool: ...
    def is_disk_replica(self) -> bool: ...
    def is_local_disk_replica(self) -> bool: ...
    def get_memory_descriptor(self) -> MemoryDescriptor: ...
    def get_disk_descriptor(self) -> NoReturn: ...

class BufferHandle(Buffer):
    def ptr(self) -> int: ...
    def size(self) -> int: ...
    def __len__(self) -> int: ...

class PinnedBuffer(Buffer):
    def ptr(self) -> int: ...
    def size(self) -> int: ...
    def __len__(self) -> int: ...
    def release(self) -> None: ...
    def __enter__(self) -> PinnedBuffer: ...
    def __exit__(self, *args: object) -> None: ...

class BufferLeaseView(Buffer):
    def __init__(self, whole: Buffer, offset: int, size: int, /) -> None: ...
    @property
    def buffer(self) -> memoryview: ...
    @property
    def _address(self) -> int: ...
    @property
    def _views(self) -> int: ...

# A sequence of ints, or an array of int64 or uint64 with one dimension (Buffer or DLPack).
Integers = Sequence[SupportsIndex] | Buffer | Any

Key = str | bytes
# A sequence of keys, or one numpy array of dtype 'S'.
Keys = Sequence[Key] | Buffer | Any
# list[int]; an int64 array where the keys came as one.
Codes = Any

class MooncakeDistributedStore:
    def __init__(self) -> None: ...
    @property
    def _session(self) -> int: ...
    @property
    def _local_buffer_size(self) -> int: ...
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
        engine: TransferEngine | None = None,
        enable_ssd_offload: bool = False,
        ssd_offload_path: str = "",
        tenant_id: str = "default",
        enable_client_http_server: bool = False,
        client_http_port: SupportsIndex = 9300,
    ) -> int: ...
    @overload
    def setup(self, config: dict[str, Any]) -> int: ...
    def init_all(
        self, protocol: str, device_name: str, mount_segment_size: SupportsIndex = 16777216
    ) -> int: ...
    def close(self) -> int: ...
    def health_check(self) -> int: ...
    def get_hostname(self) -> str: ...
    def put(self, key: Key, value: Buffer, config: ReplicateConfig | None = None) -> int: ...
    def put_parts(
        self, key: Key, *args: Buffer, config: ReplicateConfig | None = None
    ) -> int: ...
    def put_batch(
        self, keys: Keys, values: Sequence[Buffer], config: ReplicateConfig | None = None
    ) -> int: ...
    def upsert(self, key: Key, value: Buffer, config: ReplicateConfig | None = None) -> int: ...
    def upsert_parts(
        self, key: Key, *args: Buffer, config: ReplicateConfig | None = None
    ) -> int: ...
    def upsert_batch(
        self, keys: Keys, values: Sequence[Buffer], config: ReplicateConfig | None = None
    ) -> int: ...
    def get(self, key: Key) -> bytes: ...
    def get_batch(self, keys: Keys) -> list[bytes]: ...
    def get_buffer(self, key: Key) -> BufferHandle | None: ...
    def get_pinned(self, key: Key) -> PinnedBuffer | None: ...
    def batch_get_buffer(self, keys: Keys) -> list[BufferHandle | None]: ...
    def is_exist(self, key: Key) -> int: ...
    def batch_is_exist(self, keys: Keys) -> Codes: ...
    def get_size(self, key: Key) -> int: ...
    def remove(self, key: Key, force: bool = False) -> int: ...
    def batch_remove(self, keys: Keys, force: bool = False) -> Codes: ...
    def remove_by_regex(self, regex_pattern: str, force: bool = False) -> int: ...
    def remove_all(self, force: bool = False) -> int: ...
    def why(self, key: Key) -> dict[str, Any]: ...
    def batch_put_outcomes(
        self, keys: Keys, values: Sequence[Buffer], config: ReplicateConfig | None = None
    ) -> list[dict[str, Any]]: ...
    def batch_get_outcomes(self, keys: Keys) -> list[dict[str, Any]]: ...
    def batch_exist_outcomes(self, keys: Keys) -> list[dict[str, Any]]: ...
    def get_replica_desc(self, key: Key) -> list[ReplicaDescriptor]: ...
    def batch_get_replica_desc(self, keys: Keys) -> dict[Key, list[ReplicaDescriptor]]: ...
    def register_buffer(self, buffer_ptr: SupportsIndex, size: SupportsIndex) -> int: ...
    def unregister_buffer(self, buffer_ptr: SupportsIndex) -> int: ...
    def put_from(
        self,
        key: Key,
        buffer_ptr: SupportsIndex,
        size: SupportsIndex,
        config: ReplicateConfig | None = None,
    ) -> int: ...
    def put_from_with_metadata(
        self,
        key: Key,
        buffer_ptr: SupportsIndex,
        metadata_buffer_ptr: SupportsIndex,
        size: SupportsIndex,
        metadata_size: SupportsIndex,
        config: ReplicateConfig | None = None,
    ) -> int: ...
    def batch_put_from(
        self,
        keys: Keys,
        buffer_ptrs: Integers,
        sizes: Integers,
        config: ReplicateConfig | None = None,
    ) -> Codes: ...
    def upsert_from(
        self,
        key: Key,
        buffer_ptr: SupportsIndex,
        size: SupportsIndex,
        config: ReplicateConfig | None = None,
    ) -> int: ...
    def batch_upsert_from(
        self,
        keys: Keys,
        buffer_ptrs: Integers,
        sizes: Integers,
        config: ReplicateConfig | None = None,
    ) -> Codes: ...
    def batch_put_from_multi_buffers(
        self,
        keys: Keys,
        all_buffer_ptrs: Sequence[Integers],
        all_sizes: Sequence[Integers],
        config: ReplicateConfig | None = None,
    ) -> Codes: ...
    def get_into(self, key: Key, buffer_ptr: SupportsIndex, size: SupportsIndex) -> int: ...
    def batch_get_into(self, keys: Keys, buffer_ptrs: Integers, sizes: Integers) -> Codes: ...
    def batch_get_into_multi_buffers(
        self,
        keys: Keys,
        all_buffer_ptrs: Sequence[Integers],
        all_sizes: Sequence[Integers],
        prefer_alloc_in_same_node: bool = False,
    ) -> Codes: ...

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
