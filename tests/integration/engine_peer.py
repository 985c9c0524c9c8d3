"""A process with a Transfer Engine, for the Python tests."""

import os
import subprocess
import sys

from child_process import ChildProcess

# Serves `size` bytes of zeros, and says what lies there when it is asked. "weights": a file, mapped
# for reading only.
PROGRAM = """
import os, sys, tempfile
import numpy
from mooncake.engine import TransferEngine
name, size, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
engine = TransferEngine()
assert engine.initialize(name, "P2PHANDSHAKE", "tcp", "") == 0
if kind == "managed":
    address = engine.allocate_managed_buffer(size)
    assert address
else:
    if kind == "weights":
        file = tempfile.NamedTemporaryFile()
        file.truncate(size)
        memory = numpy.memmap(file.name, dtype=numpy.uint8, mode="r")
    else:
        memory = numpy.zeros(size, dtype=numpy.uint8)
    address = memory.ctypes.data
    assert engine.register_memory(address, size) == 0
print(engine.get_rpc_port(), address, flush=True)
for line in sys.stdin:
    offset, count = map(int, line.split())
    sys.stdout.buffer.write(engine.read_bytes_from_buffer(address + offset, count))
    sys.stdout.buffer.flush()
"""


class PeerProcess(ChildProcess):
    """Serving when the constructor returns; ends with the `with` block."""

    def __init__(self, size: int, name: str = "127.0.0.1", managed: bool = False,
                 weights: bool = False) -> None:
        kind = "weights" if weights else "managed" if managed else "own"
        self.size = size
        environment = os.environ | {"MC_LEGACY_RPC_PORT_BINDING": "1" if ":" in name else ""}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, name, str(size), kind],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        port, address = self.process.stdout.readline().split()
        self.name = f"127.0.0.1:{int(port)}"
        self.address = int(address)

    def read(self, offset: int, count: int) -> bytes:
        self.process.stdin.write(f"{offset} {count}\n".encode())
        self.process.stdin.flush()
        return self.process.stdout.read(count)

    def __enter__(self) -> "PeerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.process.stdin.close()
        self.process.stdout.close()


def wait_for_output(process: subprocess.Popen[str]) -> str:
    """The first line on its stdout; what it said on stderr when it ended without one."""
    line = process.stdout.readline()
    return line or process.communicate()[1] or "nothing was said"
