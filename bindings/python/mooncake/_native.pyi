"""Types of the native module. The words are in the docstrings: help(MooncakeDistributedStore)."""

import sys
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
