"""A mooncake_master for the Python tests: started on free ports, killed at the end."""

import os
import socket
import subprocess
from collections.abc import Iterator

import pytest


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class MasterProcess:
    """A Master that is serving when the constructor returns."""

    def __init__(self) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        program = os.path.join(os.environ["MOONCAKE_BIN_DIR"], "mooncake_master")
        self.process = subprocess.Popen(
            [program, "-rpc_address=127.0.0.1", f"-rpc_port={self.address.rpartition(':')[2]}",
             "-metrics_host=127.0.0.1", f"-metrics_port={free_port()}", "-log_level=error"],
            stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert "ready" in line, line

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        self.kill()
        self.process.stdout.close()


@pytest.fixture
def live_master() -> Iterator[MasterProcess]:
    master = MasterProcess()
    yield master
    master.end()
