"""Proves what `mooncake doctor` says of this machine, of the paths to memory of each kind, and of peers, in text and in
JSON alike; and its exit status."""

import json
import os
import subprocess
from typing import Any

from conftest import MasterProcess
from engine_peer import PeerProcess

MOONCAKE = os.path.join(os.environ.get("MOONCAKE_BIN_DIR", ""), "mooncake")
KINDS = {"memory of a pool, on this host": {"shm", "process_vm", "ring", "unix", "tcp"},
         "any other memory, on this host": {"process_vm", "ring", "unix", "tcp", "shm"},
         "memory on another host": {"tcp", "shm", "process_vm"}}


def doctor(*flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([MOONCAKE, "doctor", *flags], capture_output=True, text=True, timeout=60,
                          env=os.environ | environment)


def usable(document: dict[str, Any], memory: str) -> list[str]:
    """Transports, best first; and that each one says why, or why not."""
    paths = next(each["paths"] for each in document["paths"] if each["memory"] == memory)
    assert {path["transport"] for path in paths} == KINDS[memory]
    assert all(path["reason"] for path in paths)
    names = [path["transport"] for path in paths if path["usable"]]
    assert names == [path["transport"] for path in paths[:len(names)]], "the others come last"
    return names


def test_it_says_the_same_in_text_and_in_json(live_master: MasterProcess) -> None:
    with PeerProcess(4096) as peer:
        flags = ["--master", live_master.address, "--peer", peer.name]
        told, printed = doctor("--json", *flags), doctor(*flags)
    assert (told.returncode, told.stderr) == (0, "") and printed.returncode == 0
    document = json.loads(told.stdout)
    assert document["healthy"] is True
    shared = document["shared_memory"]
    for name in ("memfd with seals", "2 MiB pages (MADV_COLLAPSE)", "reserved huge pages", "pidfd",
                 "SO_PEERCRED", "abstract Unix sockets", "Yama ptrace_scope", "boot id"):
        assert shared[name]["value"] and name in printed.stdout, name
    for name in ("open files limit (NOFILE)", "locked memory limit (MEMLOCK)", "kernel"):
        assert document["machine"][name]["value"] and name in printed.stdout, name
    order = usable(document, "memory of a pool, on this host")
    assert order in (["shm", "process_vm", "ring", "unix", "tcp"], ["shm", "ring", "unix", "tcp"], ["tcp"])
    assert usable(document, "any other memory, on this host") == [w for w in order if w != "shm"]
    assert usable(document, "memory on another host") == ["tcp"]
    for kind in KINDS:
        assert f"  {kind}\n    1. " in printed.stdout
    assert [p["ok"] for p in document["peers"]] == [True, True, True]
    assert document["peers"][2]["name"] == peer.name


def test_forced_sockets_are_the_reason(live_master: MasterProcess) -> None:
    told = doctor("--json", "--master", live_master.address, MC_FORCE_TCP="1")
    document = json.loads(told.stdout)
    for kind in KINDS:
        assert usable(document, kind) == ["tcp"]
    pool = document["paths"][0]["paths"]
    assert all("MC_FORCE_TCP" in path["reason"] for path in pool if not path["usable"])


def test_what_would_fail_makes_its_status_one() -> None:
    done = doctor("--master", "127.0.0.1:1", "--peer", "127.0.0.1:1", "--timeout-ms", "500")
    assert done.returncode == 1 and done.stdout.count("FAILS: ") == 2, done.stdout
