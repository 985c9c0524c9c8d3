#!/usr/bin/env python3
"""Compares the Transfer Engine with the stock package, with NIXL, and with bare loops.

Needs `make build PRESET=release` with its Python module and bench programs (`make compare` does all
that). Peers come from the package index into build/compare/, once.
"""

import contextlib
import json
import statistics
import subprocess
import sys

import harness
from harness import HERE, KIB, MIB, peer_python
from lines import Child

NAME = "transfer"
FAMILIES = ("mapped", "any", "tcp", "registration", "life")
REGION = 128 << 20
# (bytes of one range, ranges of one call)
SHAPES = [(4 * KIB, 1), (4 * KIB, 128), (64 * KIB, 16), (256 * KIB, 4), (MIB, 1), (4 * MIB, 1),
          (16 * MIB, 1)]


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
            process.answer()
        peer = self.target.ask(do="describe")
        self.initiator.ask(do="connect", peer=peer)
        if self.kind == "nixl":  # both ways know each other
            self.target.ask(do="connect", peer=self.initiator.ask(do="describe"))

    def spawn(self):
        process = Child(
            self.name,
            [self.python, str(HERE / "worker.py"), self.kind, self.memory, str(REGION)],
            harness.environment_of(self.environment), harness.log_of(self.name))
        self.processes.append(process)
        return process

    def pause(self):
        """Until its next turn: who polls without end would have the cores of the others."""
        for process in self.processes:
            process.pause()

    @contextlib.contextmanager
    def turn(self):
        for process in self.processes:
            process.go_on()
        try:
            yield
        finally:
            self.pause()

    def run(self, operation, length, batch, seconds, seed):
        with self.turn():
            return self.run_alone(operation, length, batch, seconds, seed)

    def run_alone(self, operation, length, batch, seconds, seed):
        source, sink = ((self.initiator, self.target) if operation == "write"
                        else (self.target, self.initiator))
        source.ask(do="fill", seed=seed)
        sink.ask(do="fill", seed=seed + 1)
        before = self.target.ask(do="cpu")["cpu"]
        result = self.initiator.ask(do="run", operation=operation, length=length, batch=batch,
                                    seconds=seconds, at_least=3, max_groups=4096)
        result["cpu"] += self.target.ask(do="cpu")["cpu"] - before
        good = sink.ask(do="check", seed=seed, bytes=result["touched"])["good"]
        if not good or result["failures"]:
            raise RuntimeError(f"{self.name}: {operation} {length} x {batch}: "
                               f"{result['failures']} failures, bytes right: {good}")
        return result

    def stop(self):
        for process in self.processes:
            process.stop()
        self.processes = []


class BareLoop:
    """The limit, as one more side that takes its turn."""

    def __init__(self, name, way, program):
        self.name, self.way, self.program = name, way, program

    def start(self):
        pass

    pause = stop = start

    def run(self, operation, length, batch, seconds, seed):
        done = subprocess.run([self.program, self.way, operation, str(length), str(batch),
                               str(seconds)], capture_output=True, text=True, check=True,
                              timeout=60)
        return json.loads(done.stdout)


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
            for repetition, side in harness.turns(sides, options.repeat + 1):
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
    rates = harness.spread([r["bytes"] / r["seconds"] / 1e9 for r in results])
    median = statistics.median
    gigabytes = sum(r["bytes"] for r in results) / 1e9
    cpu = sum(r.get("cpu", 0) for r in results)
    return {"gb_s": rates["median"], "low": rates["low"], "high": rates["high"],
            "p50_us": median(r["p50_us"] for r in results),
            "p99_us": median(r["p99_us"] for r in results),
            "cpu_s_per_gb": cpu / gigabytes if cpu else None}


def print_row(row):
    size = row["length"]
    ours = row["sides"]["ours"]
    print(f"\n{row['operation']} {harness.size_text(size)} x {row['batch']}")
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
                found = [side.initiator.ask(do="register", live=live, calls=100, seconds=0.2)
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
                found = side.target.ask(do="opened")
                side.initiator.ask(do="fill", seed=1)  # its own pages are there
                found |= side.initiator.ask(do="passes", piece=MIB)
                found["idle"] = side.target.ask(do="idle", seconds=1.0)["share"]
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


def run(families, options):
    results = {}
    for family in families:
        if family == "registration":
            results[family] = measure_registration(options, options.build)
            continue
        if family == "life":
            results[family] = measure_life(options, options.build)
            continue
        sides = sides_for(family, options.build)
        print(f"\n== {family}")
        try:
            for side in sides:
                side.start()
                side.pause()
            results[family] = measure(sides, options)
        finally:
            for side in sides:
                side.stop()
    return results, []


if __name__ == "__main__":
    harness.command([sys.modules[__name__]], __doc__.splitlines()[0])
