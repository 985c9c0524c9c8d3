"""MooncakeConfig: the settings of a store's client, from a file or the environment."""

import json
import logging
import math
import os
from dataclasses import dataclass
from typing import Any, Optional

from mooncake import _native

DEFAULT_GLOBAL_SEGMENT_SIZE = 3355443200  # 3.125 GiB
DEFAULT_LOCAL_BUFFER_SIZE = 1073741824  # 1.0 GiB

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_TRUE = ("true", "1", "yes", "on", "enable")
_FALSE = ("false", "0", "no", "off", "disable")

_log = logging.getLogger(__name__)


def _size(name: str, value: Any) -> int:
    """Bytes from 5, "5", "1.5gb" or "16 MB"; units are powers of 1024."""
    if isinstance(value, int) and not isinstance(value, bool):
        bytes_ = value
    else:
        text = str(value).strip().lower()
        number = text.rstrip("kmgtb")
        unit = text[len(number) :]
        factor = _UNITS.get(unit[:-1] if len(unit) == 2 and unit[1] == "b" else unit)
        try:
            if factor is None or isinstance(value, bool):
                raise ValueError
            number = number.strip()
            amount = int(number) if number.lstrip("+-").isdecimal() else float(number)
            if not math.isfinite(amount):
                raise ValueError
        except ValueError:
            raise ValueError(
                f"{name}: {value!r} is no size; give bytes, or a number with one of b, kb, mb, gb, tb"
            ) from None
        bytes_ = int(amount * factor)
    if bytes_ < 0:
        raise ValueError(f"{name}: {value!r} is negative; give 0 or more bytes")
    return bytes_


def _bool(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(f"{name}: {value!r} is none of {', '.join(_TRUE + _FALSE)}")


def _port(name: str, value: Any) -> int:
    try:
        port = int(value)
    except (TypeError, ValueError):
        port = -1
    if isinstance(value, bool) or not 0 < port < 65536:
        raise ValueError(f"{name}: {value!r} is no port; give 1 to 65535")
    return port


@dataclass
class MooncakeConfig:
    """What MooncakeDistributedStore.setup() needs. ValueError names the field that is wrong.

    Sizes are bytes; they may be given as text with a unit of 1024s ("512mb", "0.5 GB")."""

    local_hostname: str
    metadata_server: str
    global_segment_size: int
    local_buffer_size: int
    protocol: str
    device_name: Optional[str]
    master_server_address: str
    enable_ssd_offload: bool = False
    ssd_offload_path: str = ""
    tenant_id: str = "default"
    enable_client_http_server: bool = False
    client_http_port: int = 9300

    def __post_init__(self) -> None:
        for name in ("local_hostname", "metadata_server", "master_server_address", "protocol"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                raise ValueError(f"{name}: {value!r} is empty or no text; it must be given")
        self.protocol = self.protocol.strip().lower()
        if self.protocol not in _native.PROTOCOLS:
            _log.warning(
                "protocol: %r is unknown; known are %s", self.protocol, ", ".join(_native.PROTOCOLS)
            )
        for name in ("global_segment_size", "local_buffer_size"):
            setattr(self, name, _size(name, getattr(self, name)))
        for name in ("enable_ssd_offload", "enable_client_http_server"):
            setattr(self, name, _bool(name, getattr(self, name)))
        self.client_http_port = _port("client_http_port", self.client_http_port)

    @staticmethod
    def from_file(file_path: str) -> "MooncakeConfig":
        """From a JSON object whose keys are the fields. local_hostname, metadata_server and
        master_server_address are required; the others have the defaults of load_from_env()."""
        with open(file_path) as file:
            given = json.load(file)
        if not isinstance(given, dict):
            raise ValueError(f"{file_path}: a JSON object is needed, not {type(given).__name__}")
        for name in ("local_hostname", "metadata_server", "master_server_address"):
            if name not in given:
                raise ValueError(f"Missing required config field: {name}")
        defaults = {
            "global_segment_size": DEFAULT_GLOBAL_SEGMENT_SIZE,
            "local_buffer_size": DEFAULT_LOCAL_BUFFER_SIZE,
            "protocol": "tcp",
            "device_name": "",
        }
        fields = MooncakeConfig.__dataclass_fields__
        return MooncakeConfig(**defaults | {n: v for n, v in given.items() if n in fields})

    @staticmethod
    def load_from_env() -> "MooncakeConfig":
        """From the file that MOONCAKE_CONFIG_PATH names; without it from MOONCAKE_MASTER (required),
        MOONCAKE_LOCAL_HOSTNAME (localhost), MOONCAKE_TE_META_DATA_SERVER (P2PHANDSHAKE),
        MOONCAKE_GLOBAL_SEGMENT_SIZE (3355443200), MOONCAKE_LOCAL_BUFFER_SIZE (1073741824),
        MOONCAKE_PROTOCOL (tcp), MOONCAKE_DEVICE, MOONCAKE_OFFLOAD_ENABLED (false),
        MOONCAKE_OFFLOAD_FILE_STORAGE_PATH, MOONCAKE_TENANT_ID (default),
        MOONCAKE_ENABLE_CLIENT_HTTP_SERVER (false) and MOONCAKE_CLIENT_HTTP_PORT (9300)."""
        path = os.environ.get("MOONCAKE_CONFIG_PATH")
        if path:
            return MooncakeConfig.from_file(path)
        get = os.environ.get
        master = get("MOONCAKE_MASTER")
        if not master:
            raise ValueError("neither MOONCAKE_CONFIG_PATH nor MOONCAKE_MASTER is set; set one")
        return MooncakeConfig(
            local_hostname=get("MOONCAKE_LOCAL_HOSTNAME", "localhost"),
            metadata_server=get("MOONCAKE_TE_META_DATA_SERVER", "P2PHANDSHAKE"),
            global_segment_size=get("MOONCAKE_GLOBAL_SEGMENT_SIZE", DEFAULT_GLOBAL_SEGMENT_SIZE),
            local_buffer_size=get("MOONCAKE_LOCAL_BUFFER_SIZE", DEFAULT_LOCAL_BUFFER_SIZE),
            protocol=get("MOONCAKE_PROTOCOL", "tcp"),
            device_name=get("MOONCAKE_DEVICE", ""),
            master_server_address=master,
            enable_ssd_offload=get("MOONCAKE_OFFLOAD_ENABLED", False),
            ssd_offload_path=get("MOONCAKE_OFFLOAD_FILE_STORAGE_PATH", ""),
            tenant_id=get("MOONCAKE_TENANT_ID", "default"),
            enable_client_http_server=get("MOONCAKE_ENABLE_CLIENT_HTTP_SERVER", False),
            client_http_port=get("MOONCAKE_CLIENT_HTTP_PORT", 9300),
        )


__all__ = ["MooncakeConfig"]
