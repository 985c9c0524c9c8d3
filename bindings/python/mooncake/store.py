"""The object store: a cluster's spare memory as one pool of immutable objects."""

from typing import Any

from mooncake import _native
from mooncake._buffer_pool import BufferLease, BufferPool
from mooncake._native import (
    ACTIVATION,
    COMPLETE,
    GENERAL,
    GRADIENT,
    INITIALIZED,
    KVCACHE,
    METADATA,
    OPTIMIZER_STATE,
    PROCESSING,
    REMOVED,
    SAMPLE,
    TENSOR,
    UNDEFINED,
    UNKNOWN,
    WEIGHT,
    BufferHandle,
    BufferLeaseView,
    Descriptor,
    MemoryDescriptor,
    MooncakeDistributedStore,
    ObjectDataType,
    PinnedBuffer,
    ReplicaDescriptor,
    ReplicaStatus,
    ReplicateConfig,
    SoftPinAction,
)

RegisteredBufferLease = BufferLease
RegisteredBufferLeaseView = BufferLeaseView
RegisteredBufferPool = BufferPool


def capabilities() -> dict[str, Any]:
    """capabilities() -> dict

    What this build serves, for callers that would rather ask than try. Names of features are there in
    any case, with False for what setup() or a call refuses; limits are in the unit of their name."""
    return {
        "version": _native.__version__,
        "protocols": _native.SERVED_PROTOCOLS,
        "metadata_servers": ("P2PHANDSHAKE", "http"),
        "embedded_master": True,
        "shared_engine": True,
        "array_arguments": True,
        "upsert": True,
        "soft_pin": True,
        "hard_pin": True,
        "preferred_segments": True,
        "buffer_pool": True,
        "async": True,
        "pinned_reads": True,
        "max_key_bytes": _native.MAX_KEY_BYTES,
        "max_replicas": _native.MAX_REPLICAS,
        "groups": False,
        "tenants": False,
        "ssd_offload": False,
        "nvmeof_replicas": False,
        "dfs_replicas": False,
        "high_availability": False,
        "dummy_clients": False,
        "sessions": False,
        "tensors": False,
        "copy_and_move_tasks": False,
    }


__all__ = [
    "ACTIVATION",
    "COMPLETE",
    "GENERAL",
    "GRADIENT",
    "INITIALIZED",
    "KVCACHE",
    "METADATA",
    "OPTIMIZER_STATE",
    "PROCESSING",
    "REMOVED",
    "SAMPLE",
    "TENSOR",
    "UNDEFINED",
    "UNKNOWN",
    "WEIGHT",
    "BufferHandle",
    "BufferLease",
    "BufferLeaseView",
    "BufferPool",
    "Descriptor",
    "MemoryDescriptor",
    "MooncakeDistributedStore",
    "ObjectDataType",
    "PinnedBuffer",
    "RegisteredBufferLease",
    "RegisteredBufferLeaseView",
    "RegisteredBufferPool",
    "ReplicaDescriptor",
    "ReplicaStatus",
    "ReplicateConfig",
    "SoftPinAction",
    "capabilities",
]
