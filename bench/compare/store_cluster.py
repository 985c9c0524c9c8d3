"""A Store of one side on loopback: a Master, a process that gives memory, and one that is measured.

Redis's server is both of the first two; bare transfers have no Master.
"""

import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field

import harness
from lines import Child, Gone, end_with_parent, stop_process

START_LIMIT = 60  # seconds
# The stock package at its best: what its --help and its documentation name, tried on two cores.
BEST_FLAGS = ["-rpc_thread_num=4", "-enable_metric_reporting=false"]
BEST_SETTINGS = {"MC_STORE_CLIENT_METRIC": "0", "MC_TCP_ENABLE_CONNECTION_POOL": "1",
                 "MC_TCP_SLICE_SIZE": str(harness.MIB)}


@dataclass
class Kind:
    """What a side is made of."""

    name: str
    store: str  # one of store_sides.STORES
    python: str
    master: list  # the program of its Master or server, with settings
    environment: dict = field(default_factory=dict)
    note: str = ""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Cluster:
    """The processes of one side. After stop() none is left, whatever happened before."""

    def __init__(self, kind):
        self.kind = kind
        self.name = kind.name
        self.server = self.address = None
        self.children = []
        self.storage = self.driver = None
        self.gone = None  # why nothing more can be asked of it

    def start(self, segment):
        """Everything, the process that gives memory last: the driver can use that at once."""
        if self.kind.store == "transfer":
            self.storage = self.spawn("storage", segment)
            self.address = self.storage.ask(do="place")["place"]
            self.driver = self.spawn("driver", 0)
            return
        self.start_server()
        self.driver = self.spawn("driver", 0)
        if self.kind.store != "redis":
            self.storage = self.spawn("storage", segment)

    def start_server(self):
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        with open(harness.log_of(self.name), "ab") as log:
            self.server = subprocess.Popen(
                self.kind.master + self.server_flags(port), stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env=harness.environment_of(self.kind.environment),
                preexec_fn=end_with_parent)
        for _ in range(START_LIMIT * 100):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            except OSError:
                if self.server.poll() is not None:
                    break
                time.sleep(0.01)
        raise Gone(f"{self.name}: {self.kind.master[0]} does not serve port {port}, see "
                   f"{harness.log_of(self.name)}")

    def server_flags(self, port):
        if self.kind.store == "redis":
            return ["--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no"]
        return ["-rpc_address=127.0.0.1", f"-rpc_port={port}", "-metrics_host=127.0.0.1",
                f"-metrics_port={free_port()}"]

    def spawn(self, role, segment):
        child = Child(
            f"{self.name} ({role})",
            [self.kind.python, str(harness.HERE / "store_worker.py"), role, self.kind.store,
             str(self.address), str(segment)],
            harness.environment_of(self.kind.environment), harness.log_of(self.name))
        self.children.append(child)
        child.answer(START_LIMIT)
        return child

    def processes(self):
        """Those beside the driver, by what they do."""
        found = {"master": self.server.pid} if self.server else {}
        if self.storage:
            found["storage"] = self.storage.pid
        return found

    def stop(self):
        for child in reversed(self.children):
            child.stop()
        self.children = []
        if self.server:
            self.server.terminate()
            stop_process(self.server)
            self.server = None


def kinds(build, wanted):
    """The sides by name, those wanted or all, and what is said of those that can't be had."""
    stock = harness.peer_python("stock")
    ours = {"PYTHONPATH": str(build / "python")}
    our_master = [str(build / "bin/mooncake_master")]
    stock_master = [str(harness.PLACE / "stock/bin/mooncake_master")]
    found = [
        Kind("ours", "mooncake", stock, our_master, ours, "defaults"),
        Kind("ours, tcp", "mooncake", stock, our_master, ours | {"MC_FORCE_TCP": "1"},
             "MC_FORCE_TCP=1"),
        Kind("transfer, tcp", "transfer", stock, [], ours | {"MC_FORCE_TCP": "1"},
             "our engine alone, MC_FORCE_TCP=1"),
        Kind("stock", "mooncake", stock, stock_master, {}, "defaults"),
        Kind("stock, tuned", "mooncake", stock, stock_master + BEST_FLAGS, BEST_SETTINGS,
             " ".join(BEST_FLAGS + [f"{k}={v}" for k, v in BEST_SETTINGS.items()])),
    ]
    redis = shutil.which("redis-server")
    if redis and (not wanted or "redis" in wanted):
        found.append(Kind("redis", "redis", harness.peer_python("redis"), [redis], {},
                          "no persistence, loopback TCP, hiredis; moves bytes objects"))
    missing = [] if redis else ["redis: no redis-server on PATH; apt-get install redis-server"]
    known = [kind.name for kind in found] + ["redis"]
    for name in wanted or []:
        if name not in known:
            raise SystemExit(f"--sides: no side {name!r}; there are {', '.join(known)}")
    return [kind for kind in found if not wanted or kind.name in wanted], missing
