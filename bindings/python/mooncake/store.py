"""The object store: a cluster's spare memory as one pool of immutable objects."""

from mooncake._native import MooncakeDistributedStore, ReplicateConfig

__all__ = ["MooncakeDistributedStore", "ReplicateConfig"]
