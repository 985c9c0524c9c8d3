"""For the Python tests: a mooncake_master on free ports, killed at the end; a store; and a metadata
server."""

import os
import socket
import subprocess
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from child_process import ChildProcess


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class MasterProcess(ChildProcess):
    """A Master that is serving when the constructor returns. `metrics` is the URL of its numbers."""

    def __init__(self, *flags: str) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        metrics_port = free_port()
        self.metrics = f"http://127.0.0.1:{metrics_port}/metrics"
        program = os.path.join(os.environ["MOONCAKE_BIN_DIR"], "mooncake_master")
        self.command = [
            program, "-rpc_address=127.0.0.1", f"-rpc_port={self.address.rpartition(':')[2]}",
            "-metrics_host=127.0.0.1", f"-metrics_port={metrics_port}", "-log_level=error", *flags]
        self.start()

    def start(self) -> None:
        """Also again, at the same addresses, after kill()."""
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert "ready" in line, line

    def end(self) -> None:
        self.kill()
        self.process.stdout.close()


@pytest.fixture
def live_master() -> Iterator[MasterProcess]:
    master = MasterProcess()
    yield master
    master.end()


@pytest.fixture(params=["embedded", "process"])
def store(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A Python store that is set up, with a Master in this process and with one of its own."""
    from store_rig import opened

    master = "embedded"
    if request.param == "process":
        master = request.getfixturevalue("live_master").address
    store = opened(master)
    yield store
    assert store.close() == 0


class MetadataHandler(BaseHTTPRequestHandler):
    """One document for each key, as the published metadata server keeps them."""

    documents: dict[str, bytes] = {}

    def key(self) -> str:
        query = urllib.parse.urlsplit(self.path).query
        return urllib.parse.parse_qs(query)["key"][0]

    def answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        document = self.documents.get(self.key())
        self.answer(404 if document is None else 200, document or b"metadata not found")

    def do_PUT(self) -> None:
        self.documents[self.key()] = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200, b"metadata updated")

    def do_DELETE(self) -> None:
        known = self.documents.pop(self.key(), None) is not None
        self.answer(200 if known else 404)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def metadata_server() -> Iterator[str]:
    """The URL of a metadata server that lives as long as the test."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), MetadataHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/metadata"
    server.shutdown()
    thread.join()
    server.server_close()
