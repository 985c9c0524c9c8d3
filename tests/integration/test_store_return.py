"""Proves case C6 with real processes: a store that was killed is let in again at once under its old
host:port, and what it held is a miss for others, not a wait."""

import subprocess
import sys
import time

from conftest import MasterProcess, free_port
from store_rig import MEBIBYTE, opened

NODE = """
import sys
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
code = store.setup({"local_hostname": sys.argv[1], "metadata_server": "P2PHANDSHAKE",
                    "global_segment_size": 16 << 20, "master_server_addr": sys.argv[2]})
print("code", code, store.put(sys.argv[3], b"value" * 1000), flush=True)
sys.stdin.read()
"""


def start(name: str, master: str, key: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", NODE, name, master, key], text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_c6_a_killed_store_returns_at_once_under_its_name(live_master: MasterProcess) -> None:
    name = f"127.0.0.1:{free_port()}"
    first = start(name, live_master.address, "before")
    try:
        assert first.stdout.readline() == "code 0 0\n"
    finally:
        first.kill()
        first.wait()
    begun = time.monotonic()
    second = start(name, live_master.address, "after")
    try:
        assert second.stdout.readline() == "code 0 0\n"
        # Well below the time to live of a client, 10 s, and with the start of Python in it.
        assert time.monotonic() - begun < 5
        reader = opened(live_master.address, global_segment_size=MEBIBYTE)
        try:
            assert reader.get("after") == b"value" * 1000
            begun = time.monotonic()
            assert reader.get("before") == b""
            assert time.monotonic() - begun < 2
        finally:
            reader.close()
    finally:
        second.kill()
        second.communicate()
