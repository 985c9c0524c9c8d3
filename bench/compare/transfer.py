#!/usr/bin/env python3
"""Compares the Transfer Engine with the stock package, with NIXL, and with bare loops.

Needs `make build PRESET=release` with its Python module and bench programs (`make compare` does all
that). Peers come from the package index into build/compare/, once.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import venv

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
REGION = 128 << 20
KIB, MIB = 1 << 10, 1 << 20
# (bytes of one range, ranges of one call)
SHAPES = [(4 * KIB, 1), (4 * KIB, 128), (64 * KIB, 16), (256 * KIB, 4), (MIB, 1), (4 * MIB, 1),
          (16 * MIB, 1)]
PACKAGES = {"stock": ["mooncake-transfer-engine-non-cuda", "numpy"],
            "nixl": ["nixl-cu12", "numpy"]}


class Side:
    """Two processes of one peer: a target, and an initiator that is measured."""

    def __init__(self, name, kind, python, environment=(), memory="any", bare=None):
        self.name, self.kind, self.python, self.memory = name, kind, python, memory
        self.environment = dict(environment)
        self.bare = bare  # the loop that is its limit
        self.processes = []

    def start(self):
        self.target, self.initiator = self.spawn(), self.spawn()
        for process in self.processes:
            self.answer(process)
        peer = self.ask(self.target, do="describe")
        self.ask(self.initiator, do="connect", peer=peer)
        if self.kind == "nixl":  # both ways know each other
            own = self.ask(self.initiator, do="describe")
            self.ask(self.target, do="connect", peer=own)

    def spawn(self):
        # Without settings of the caller's that would steer one of the sides.
        environment = {key: value for key, value in os.environ.items()
                       if not key.startswith(("MC_", "UCX_", "MOONCAKE_"))}
        environment |= {"GLOG_minloglevel": "2", "NIXL_LOG_LEVEL": "ERROR", **self.environment}
        log = open(ROOT / "build/compare" / f"{self.name.replace('/', '-')}.log", "ab")
        process = subprocess.Popen(
            [self.python, str(HERE / "worker.py"), self.kind, self.memory, str(REGION)],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        self.processes.append(process)
        return process

    def ask(self, process, **command):
        process.stdin.write(json.dumps(command) + "\n")
        process.stdin.flush()
        return self.answer(process)

    def answer(self, process):
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} has ended, see its log in build/compare")
        return json.loads(line)

    def run(self, operation, length, batch, seconds, seed):
        source, sink = ((self.initiator, self.target) if operation == "write"
                        else (self.target, self.initiator))
        self.ask(source, do="fill", seed=seed)
        self.ask(sink, do="fill", seed=seed + 1)
        before = self.ask(self.target, do="cpu")["cpu"]
        result = self.ask(self.initiator, do="run", operation=operation, length=length,
                          batch=batch, seconds=seconds, at_least=3, max_groups=4096)
        result["cpu"] += self.ask(self.target, do="cpu")["cpu"] - before
        good = self.ask(sink, do="check", seed=seed, bytes=result["touched"])["good"]
        if not good or result["failures"]:
            raise RuntimeError(f"{self.name}: {operation} {length} x {batch}: "
                               f"{result['failures']} failures, bytes right: {good}")
        return result

    def stop(self):
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes = []


class BareLoop:
    """The limit, as one more side that takes its turn."""

    def __init__(self, name, way, program):
        self.name, self.way, self.program = name, way, program

    def start(self):
        pass

    def stop(self):
        pass

    def run(self, operation, length, batch, seconds, seed):
        done = subprocess.run([self.program, self.way, operation, str(length), str(batch),
                               str(seconds)], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)


def peer_python(name):
    """The interpreter of a peer's own environment; made when it is missing."""
    home = ROOT / "build/compare" / name
    python = home / "bin/python"
    if not (home / "complete").exists():
        print(f"installing {' '.join(PACKAGES[name])} into {home}", file=sys.stderr)
        venv.create(home, with_pip=True, clear=True)
        # NIXL asks for torch with all of CUDA; the adapter does without.
        options = ["--no-deps"] if name == "nixl" else []
        subprocess.run([python, "-m", "pip", "install", "-q", *options, *PACKAGES[name]],
                       check=True, stdout=sys.stderr)
        (home / "complete").touch()
    return str(python)


def sides_for(family, build):
    """The sides of one table."""
    ours_path = {"PYTHONPATH": str(build / "python")}
    stock = peer_python("stock")
    bare = str(build / "bench-bin/bare_loops")
    if family == "tcp":
        return [
            Side("ours", "mooncake", stock, {**ours_path, "MC_FORCE_TCP": "1"}),
            Side("stock", "mooncake", stock, {"MC_FORCE_TCP": "1"}),
            Side("stock, tuned", "mooncake", stock,
                 {"MC_FORCE_TCP": "1", "MC_TCP_ENABLE_CONNECTION_POOL": "1",
                  "MC_TCP_SLICE_SIZE": str(MIB)}),
            Side("nixl tcp", "nixl", peer_python("nixl"), {"UCX_TLS": "tcp"}),
            BareLoop("bare tcp", "tcp", bare),
        ]
    mapped = family == "mapped"
    memory = "managed" if mapped else "any"
    return [
        Side("ours", "mooncake", stock, ours_path, memory=memory),
        Side("stock", "mooncake", stock, {}, memory=memory),
        Side("nixl ucx", "nixl", peer_python("nixl")),
        BareLoop("bare " + ("mapped" if mapped else "vm"), "mapped" if mapped else "vm", bare),
    ]


def measure(sides, options):
    rows = []
    seed = 1
    for length, batch in SHAPES:
        if options.only and f"{length}x{batch}" not in options.only:
            continue
        for operation in ("write", "read"):
            results = {side.name: [] for side in sides}
            for repetition in range(options.repeat + 1):
                for side in sides:
                    seed += 2
                    result = side.run(operation, length, batch, options.seconds, seed)
                    if repetition > 0:  # the first is a warm-up
                        results[side.name].append(result)
            row = {"length": length, "batch": batch, "operation": operation,
                   "sides": {name: summary(found) for name, found in results.items()}}
            rows.append(row)
            print_row(row)
    return rows


def summary(results):
    rates = sorted(r["bytes"] / r["seconds"] / 1e9 for r in results)
    median = statistics.median
    gigabytes = sum(r["bytes"] for r in results) / 1e9
    cpu = sum(r.get("cpu", 0) for r in results)
    return {"gb_s": median(rates), "low": rates[0], "high": rates[-1],
            "p50_us": median(r["p50_us"] for r in results),
            "p99_us": median(r["p99_us"] for r in results),
            "cpu_s_per_gb": cpu / gigabytes if cpu else None}


def print_row(row):
    size = row["length"]
    shape = f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"
    ours = row["sides"]["ours"]
    print(f"\n{row['operation']} {shape} x {row['batch']}")
    for name, found in row["sides"].items():
        cpu = f"{found['cpu_s_per_gb']:8.3f}" if found["cpu_s_per_gb"] else " " * 8
        requests = found["gb_s"] * 1e9 / size
        print(f"  {name:14} {found['gb_s']:8.3f} GB/s  [{found['low']:.3f}..{found['high']:.3f}]"
              f"  {requests:12.0f} ranges/s  p50 {found['p50_us']:9.1f} us  p99 "
              f"{found['p99_us']:9.1f} us  {cpu} cpu-s/GB  ours/{name}: "
              f"{ours['gb_s'] / found['gb_s']:.2f}", flush=True)


def measure_registration(options, build):
    stock = peer_python("stock")
    sides = [Side("ours", "mooncake", stock, {"PYTHONPATH": str(build / "python")}),
             Side("stock", "mooncake", stock)]
    rows = []
    print("\nregistration, microseconds a call (register / unregister)")
    for side in sides:
        side.start()
    try:
        for live in (100, 1000, 10000):
            row = {"live": live, "sides": {}}
            for side in sides:
                found = [side.ask(side.initiator, do="register", live=live, calls=100)
                         for _ in range(options.repeat)]
                row["sides"][side.name] = {
                    key: statistics.median(f[key] for f in found) for key in found[0]}
            rows.append(row)
            print(f"  {live:6} live: " + "   ".join(
                f"{name} {found['register_us']:.2f} / {found['unregister_us']:.2f}"
                for name, found in row["sides"].items()), flush=True)
    finally:
        for side in sides:
            side.stop()
    return rows


def measure_life(options, build):
    """Beside the transfers: opening an engine, the first way through a peer's memory, idling."""
    stock = peer_python("stock")
    ours = {"PYTHONPATH": str(build / "python")}
    kinds = [("ours, mapped", ours, "managed"), ("ours, any", ours, "any"),
             ("stock", {}, "managed")]
    rows = {name: [] for name, _, _ in kinds}
    for _ in range(options.repeat):
        for name, environment, memory in kinds:
            side = Side(name, "mooncake", stock, environment, memory=memory)
            try:
                side.start()
                found = side.ask(side.target, do="opened")
                side.ask(side.initiator, do="fill", seed=1)  # its own pages are there
                found |= side.ask(side.initiator, do="passes", piece=MIB)
                found["idle"] = side.ask(side.target, do="idle", seconds=1.0)["share"]
                rows[name].append(found)
            finally:
                side.stop()
    print("\nlife of an engine (medians)")
    result = {}
    for name, found in rows.items():
        row = {key: statistics.median(f[key] for f in found) for key in found[0]}
        row["ratio"] = statistics.median(f["first"] / f["second"] for f in found)
        result[name] = row
        print(f"  {name:14} open {row['open_ms']:7.1f} ms  memory of 128 MiB "
              f"{row['allocate_ms']:7.1f} ms  first pass {row['first']:6.2f} GB/s, second "
              f"{row['second']:6.2f}, first/second {row['ratio']:.2f}  idle "
              f"{100 * row['idle']:.2f} % of a core", flush=True)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", choices=["mapped", "any", "tcp", "registration", "life", "all"],
                        default="all")
    parser.add_argument("--repeat", type=int, default=7, help="runs of each row (default 7)")
    parser.add_argument("--seconds", type=float, default=0.3, help="of each run (default 0.3)")
    parser.add_argument("--only", nargs="*", help="shapes, as in 4096x128")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--json", type=pathlib.Path, help="write the results here")
    options = parser.parse_args()
    (ROOT / "build/compare").mkdir(parents=True, exist_ok=True)
    results = {}
    families = ["mapped", "any", "tcp"] if options.family == "all" else [options.family]
    for family in families:
        if family in ("registration", "life"):
            continue
        sides = sides_for(family, options.build)
        print(f"\n== {family}")
        try:
            for side in sides:
                side.start()
            results[family] = measure(sides, options)
        finally:
            for side in sides:
                side.stop()
    if options.family in ("all", "registration"):
        results["registration"] = measure_registration(options, options.build)
    if options.family in ("all", "life"):
        results["life"] = measure_life(options, options.build)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
