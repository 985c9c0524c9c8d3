"""Proves the main job: `mooncake demo` moves every block of a trace through prefill, store and decode
processes with every byte right, counts hits as an unlimited cache would, finds a byte that was flipped,
copes with too little room, and leaves no process behind however it ends.

Each test starts the real program and reads its exit status, its JSON and its words.
"""

import json
import os
import pathlib
import re
import select
import signal
import subprocess

import pytest

DEMO = os.path.join(os.environ.get("MOONCAKE_BIN_DIR", ""), "mooncake")
ROOT = pathlib.Path(__file__).resolve().parents[2]
CONVERSATION = (
    pathlib.Path(os.environ.get("MOONCAKE_TRACES") or ROOT.parent / "shared/traces") / "conversation_trace.jsonl"
)
needs_conversation = pytest.mark.skipif(
    not CONVERSATION.exists(),
    reason=f"SKIPPED, NOT PROVEN: there is no {CONVERSATION}. Fetch the traces of Mooncake's FAST'25 "
    "release and set MOONCAKE_TRACES to their folder.",
)
SMALL = ("--block-bytes", "4KiB", "--segment-size", "64MiB", "--compare", "off")


def command(*options: str) -> list:
    return [DEMO, "demo", *options]


def demo(*options: str, timeout: float = 120) -> subprocess.CompletedProcess:
    return subprocess.run(command(*options), capture_output=True, text=True, timeout=timeout)


def report_of(done: subprocess.CompletedProcess, status: int = 0) -> dict:
    """The JSON of a run, after the sums that hold for each run."""
    assert done.returncode == status, done.stderr
    report = json.loads(done.stdout)
    blocks = report["blocks"]
    assert blocks["hit"] + blocks["missed"] == blocks["total"]
    assert blocks["not_stored"] <= blocks["missed"]
    assert blocks["not_stored"] == sum(blocks["not_stored_by_code"].values())
    verified = report["verified"]
    assert verified["decode_bytes"] == blocks["total"] * report["block_bytes"]
    assert verified["bytes"] == verified["decode_bytes"] + verified["prefill_bytes"]
    assert report["handoff"]["bytes"] == verified["decode_bytes"]
    moved = sum(path["bytes"] for path in report["paths"].values())
    assert moved >= report["handoff"]["bytes"]
    return report


class Running:
    """A demo under way, and a handle on each of its processes that tells when it has ended."""

    def __init__(self, *options: str):
        self.process = subprocess.Popen(
            command(*options), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self.words = ""
        self.pids = {}
        self.handles = {}
        for line in self.process.stderr:
            self.words += line
            if line.startswith("mooncake demo: started"):
                self.pids = {name: int(pid) for name, pid in re.findall(r"(\S+)=(\d+)", line)}
                self.handles = {name: os.pidfd_open(pid) for name, pid in self.pids.items()}
            if re.match(r"\d+/\d+ requests", line):
                break  # work is being done

    def __enter__(self):
        assert len(self.pids) == 6, self.words
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        for handle in self.handles.values():
            os.close(handle)

    def finish(self, timeout: float) -> int:
        self.words += self.process.communicate(timeout=timeout)[1]
        return self.process.returncode

    def living(self, seconds: float) -> list:
        """The processes that have not ended after so long."""
        names = []
        for name, handle in self.handles.items():
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            if not poll.poll(seconds * 1000):
                names.append(name)
        return names


def long_run() -> Running:
    return Running("--requests", "2000", "--block-bytes", "64KiB", "--segment-size", "128MiB")


def test_a_small_sample_hits_as_an_unlimited_cache():
    report = report_of(demo("--requests", "60", *SMALL, "--json"))
    assert report["ok"] is True and report["requests"] == 60
    assert report["hit_ratio"] == report["unlimited_hit_ratio"] > 0.1
    assert report["blocks"]["not_stored"] == 0
    assert report["evicted"]["objects"] == 0
    assert report["tokens"]["saved"] > 0
    assert report["verified"]["wrong_blocks"] == 0
    assert report["verified"]["prefill_bytes"] == report["blocks"]["hit"] * 4096
    assert report["store_put"]["bytes"] == report["blocks"]["missed"] * 4096
    for flow in ("store_get", "store_put", "handoff"):
        assert report[flow]["calls"] > 0 and report[flow]["p99_ms"] >= report[flow]["p50_ms"] > 0
    flows = sum(report[flow]["bytes"] for flow in ("store_get", "store_put", "handoff"))
    assert sum(path["bytes"] for path in report["paths"].values()) == flows
    assert report["memory"]["peak_bytes"] > 0


def test_the_same_seed_gives_the_same_counts():
    options = ("--requests", "40", *SMALL, "--json", "--seed", "7")
    first, second = (report_of(demo(*options)) for _ in range(2))
    assert first["blocks"] == second["blocks"] and first["tokens"] == second["tokens"]


def test_the_table_is_for_people():
    done = demo("--requests", "20", *SMALL)
    assert done.returncode == 0, done.stderr
    for words in ("hit ratio", "unlimited capacity", "store get", "hand-off", "by ring", "every byte is right"):
        assert words in done.stdout, done.stdout


def test_requests_larger_than_a_buffer_go_in_windows():
    report = report_of(demo("--requests", "4", "--block-bytes", "4MiB", "--segment-size", "128MiB", "--json"))
    assert report["handoff"]["calls"] > report["requests"]


def test_replicas_are_written():
    one, two = (
        report_of(demo("--requests", "20", *SMALL, "--replicas", replicas, "--json")) for replicas in ("1", "2")
    )
    assert one["blocks"] == two["blocks"]
    assert sum(p["bytes"] for p in two["paths"].values()) > sum(p["bytes"] for p in one["paths"].values())


@pytest.mark.parametrize("path, way", [("auto", "shm"), ("shm", "shm"), ("tcp", "tcp")])
def test_hand_offs_take_the_path_that_is_asked_for(path, way):
    report = report_of(demo(*SMALL, "--requests", "20", "--path", path, "--json"))
    assert report["paths"][way]["bytes"] >= report["handoff"]["bytes"]
    assert (path == "tcp") == ("shm" not in report["paths"])


def test_both_paths_are_compared():
    report = report_of(demo("--requests", "110", *SMALL[:4], "--json"))
    assert report["paths"]["shm"]["bytes"] > 0 and set(report["comparison"]) == {"shm", "tcp"}
    shm, tcp = (report["comparison"][path] for path in ("shm", "tcp"))
    assert shm["requests"] == tcp["requests"] == 100 and report["requests"] == 110
    assert shm["hit"] == tcp["hit"] > 0 and shm["blocks"] == tcp["blocks"] < report["blocks"]["total"]
    assert shm["handoff"]["bytes"] == tcp["handoff"]["bytes"] > 0
    assert shm["paths"]["shm"]["bytes"] > 0 and "shm" not in tcp["paths"]
    assert shm["wrong_blocks"] == tcp["wrong_blocks"] == 0


def test_the_comparison_is_a_table_for_people():
    done = demo("--requests", "20", *SMALL[:4])
    assert done.returncode == 0, done.stderr
    assert re.search(r"The first 20 requests again.*\n.*hand GB/s.*\n  shm .*\n  tcp ", done.stdout), done.stdout


def test_one_flipped_byte_is_found_and_named():
    done = demo("--requests", "20", *SMALL, "--json", "--inject-corruption")
    report = report_of(done, status=1)
    assert report["ok"] is False and report["verified"]["wrong_blocks"] == 1
    (wrong,) = report["verified"]["wrong"]
    assert wrong["request"] == 10 and wrong["node"].startswith("decode-") and wrong["stage"] == "hand-off"
    assert (
        f"WRONG BYTES: request 10, block {wrong['block']:#x} (position {wrong['position']}): {wrong['node']} "
        f"found the first wrong byte at offset {wrong['offset']}" in done.stderr
    )


def test_with_too_little_room_blocks_are_not_stored():
    report = report_of(demo("--requests", "60", "--block-bytes", "64KiB", "--segment-size", "1MiB", "--json"))
    assert report["ok"] is True
    assert report["blocks"]["not_stored"] > 0
    assert report["hit_ratio"] <= report["unlimited_hit_ratio"]


def test_with_little_room_blocks_are_evicted():
    report = report_of(demo("--requests", "100", "--block-bytes", "64KiB", "--segment-size", "16MiB", "--json"))
    assert report["ok"] is True
    assert report["evicted"]["objects"] > 0 and report["evicted"]["bytes"] > 0


@pytest.mark.parametrize(
    "options, words",
    [
        (["--requests", "-1"], ["--requests", "'-1'", "0..1000000"]),
        (["--block-bytes", "0"], ["--block-bytes", "'0'", "64 B..1 GiB"]),
        (["--segment-size", "50%"], ["--segment-size", "'50%'"]),
        (["--segment-size", "1TiB"], ["--segment-size", "1 TiB", "Lower"]),
        (["--replicas", "9"], ["--replicas", "'9'", "1..4"]),
        (["--trace", "/nonexistent.jsonl"], ["--trace", "/nonexistent.jsonl"]),
        (["--tarce", "sample"], ["--tarce"]),
        (["extra"], ["extra"]),
    ],
)
def test_c24_a_typo_is_refused_and_named(options, words):
    done = demo(*options)
    assert done.returncode == 2 and done.stdout == ""
    for word in words:
        assert word in done.stderr, done.stderr


def test_a_node_is_started_by_the_demo_only():
    done = subprocess.run([DEMO, "demo-node"], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2 and "mooncake demo" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_c18_a_signal_ends_all_processes(number):
    with long_run() as running:
        running.process.send_signal(number)
        assert running.finish(timeout=10) == 128 + number, running.words
        assert running.living(seconds=0) == []


def test_nodes_do_not_outlive_a_killed_demo():
    with long_run() as running:
        running.process.kill()
        running.finish(timeout=10)
        assert running.living(seconds=5) == []


@pytest.mark.parametrize("name", ["master", "prefill-1", "decode-0", "storage-0"])
def test_a_killed_process_is_named(name):
    with long_run() as running:
        os.kill(running.pids[name], signal.SIGKILL)
        assert running.finish(timeout=20) == 3, running.words
        assert f"{name} was killed by signal 9" in running.words
        assert running.living(seconds=0) == []


@needs_conversation
def test_the_begin_of_the_conversation_trace():
    report = report_of(demo("--trace", str(CONVERSATION), "--requests", "300", *SMALL, "--json"))
    assert report["requests"] == 300 and report["blocks"]["not_stored"] == 0
    assert report["hit_ratio"] == report["unlimited_hit_ratio"]


@pytest.mark.slow
@pytest.mark.timeout(1500)
@needs_conversation
@pytest.mark.parametrize("path", ["shm", "tcp"])
def test_the_whole_conversation_trace(path):
    done = demo("--trace", str(CONVERSATION), "--block-bytes", "4096", "--path", path, "--json", timeout=1400)
    report = report_of(done)
    assert report["paths"][path]["bytes"] >= report["handoff"]["bytes"]
    assert report["verified"]["wrong_blocks"] == 0
    assert report["requests"] == 12_031
    assert report["blocks"]["total"] == 288_500
    assert report["blocks"]["hit"] == 105_710
    assert report["blocks"]["not_stored"] == 0


@pytest.mark.slow
def test_the_default_run():
    done = demo("--json", timeout=280)
    report = report_of(done)
    assert report["hit_ratio"] == report["unlimited_hit_ratio"]
    assert abs(report["hit_ratio"] - 0.366) <= 0.02
    assert report["memory"]["peak_bytes"] <= 4 << 30
