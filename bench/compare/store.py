#!/usr/bin/env python3
"""Compares the Store with the stock package and with Redis.

Each side is a cluster of its own on loopback: a Master, a process that gives memory, and a driver
that is measured. Needs `make build PRESET=release` (`make compare` does that) and redis-server.
"""

import statistics
import sys
import time

import harness
from harness import KIB, MIB, size_text
from lines import Failed, Gone
from store_cluster import Cluster, kinds

NAME = "store"
FAMILIES = ("store-sync", "store-bytes", "store-batch", "store-exist", "store-master",
            "store-fresh")
SEGMENT = 512 * MIB
LIMIT = 300  # seconds for one answer: memory can be very slow to come
SOON, REST = 64, 384  # objects of 1 MiB: right after setup, and after a pause
PAUSE = 2.0  # seconds in which a fresh segment may be made ready
TCP = "ours, tcp"


def rows_of(family):
    """(operation, api, size, batch) of each row."""
    sizes = [4 * KIB, 16 * KIB, 64 * KIB, MIB, 4 * MIB, 16 * MIB]
    blocks = [(4 * KIB, 512), (64 * KIB, 512)]
    return {
        "store-sync": [(operation, "into", size, 1) for size in sizes
                       for operation in ("put", "get", "hot")],
        "store-bytes": [(operation, "bytes", size, 1) for size in (4 * KIB, MIB)
                        for operation in ("put", "get")],
        "store-batch": [(operation, "into", *block) for block in blocks
                        for operation in ("put", "get")],
        "store-exist": [("exist", "into", 4 * KIB, batch) for batch in (512, 10_000)],
        "store-master": [(operation, "into", 4 * KIB, 512)
                         for operation in ("exist", "get", "put")],
    }[family]


def title(shape):
    operation, api, size, batch = shape
    if operation == "exist":
        return f"exist of {batch} keys"
    what = {"put": "put", "get": "get", "hot": "get of one hot key"}[operation]
    how = "" if batch > 1 else {"into": ", registered memory", "bytes": ", bytes"}[api]
    return f"{what} {size_text(size)}" + (f" x {batch}" if batch > 1 else "") + how


class Table:
    """Rows of all sides, in turns. A side that fails a row is out of it, and that is told."""

    def __init__(self, clusters, options):
        self.clusters, self.options = clusters, options
        self.failures = []

    def start(self, cluster):
        """Every page of the segment is used once: fresh memory has a family of its own."""
        size = 16 * MIB
        try:
            cluster.start(SEGMENT)
            if not cluster.storage:
                return  # a server that takes memory as it needs it
            cluster.driver.ask(LIMIT, do="through", size=size, count=SEGMENT * 7 // 8 // size)
            cluster.driver.ask(LIMIT, do="finish")
        except (Failed, Gone) as error:
            cluster.gone = str(error)
            self.failures.append(cluster.gone)

    def ask(self, cluster, row, **command):
        """The driver's answer; None when the side is out of the row, which is told there."""
        found = row[cluster.name]
        if cluster.gone:
            found["failed"] = cluster.gone
        if "failed" in found or "lacks" in found:
            return None
        try:
            return cluster.driver.ask(LIMIT, **command)
        except (Failed, Gone) as error:
            if isinstance(error, Gone):
                cluster.gone = str(error)
            found["failed"] = str(error)
            self.failures.append(f"{row['title']}: {error}")
            return None

    def measure(self, shape):
        row = {"title": title(shape)} | {cluster.name: {} for cluster in self.clusters}
        results = {cluster.name: [] for cluster in self.clusters}
        for cluster in self.clusters:
            found = self.ask(cluster, row, do="prepare", shape=shape)
            if found and found["lacks"]:
                row[cluster.name]["lacks"] = found["lacks"]
        for repetition, cluster in harness.turns(self.clusters, self.options.repeat + 1):
            found = self.ask(cluster, row, do="run", shape=shape, seconds=self.options.seconds,
                             processes=cluster.processes())
            if found and repetition > 0:  # the first is a warm-up
                results[cluster.name].append(found)
        for cluster in self.clusters:
            end = {"title": row["title"], cluster.name: {}}  # also of a side that is out
            self.ask(cluster, end, do="finish")
            if results[cluster.name] and "failed" not in row[cluster.name]:
                row[cluster.name] = summary(shape, results[cluster.name])
        return row


def summary(shape, results):
    operation, _, size, _ = shape
    keys = sum(result["keys"] for result in results)
    payload = 0 if operation == "exist" else keys * size
    cpu = {role: sum(result["cpu"][role] for result in results) for role in results[0]["cpu"]}
    found = {
        "keys_s": harness.spread([r["keys"] / r["seconds"] for r in results]),
        "p50_us": statistics.median(r["p50_us"] for r in results),
        "p99_us": statistics.median(r["p99_us"] for r in results),
        "cpu_us_per_key": {role: seconds / keys * 1e6 for role, seconds in cpu.items()},
    }
    if payload:
        found["cpu_s_per_gb"] = sum(cpu.values()) / (payload / 1e9)
        found["loopback_per_byte"] = statistics.median(
            r["loopback"] / (r["keys"] * size) for r in results)
    return found


def rate(row, name):
    return row.get(name, {}).get("keys_s", {}).get("median")


def ratio(row, base, name, value=rate):
    ours, theirs = value(row, base), value(row, name)
    return f"{base}/{name}: {ours / theirs:6.2f}" if ours and theirs else ""


def problems(row):
    """What is told of a side instead of numbers."""
    found = {name: value for name, value in row.items() if name != "title"}
    return ({name: f"FAILED {value['failed']}" for name, value in found.items()
             if "failed" in value} |
            {name: f"has no {value['lacks']}" for name, value in found.items() if "lacks" in value})


def print_row(row, shape):
    operation, _, size, _ = shape
    print(f"\n{row['title']}")
    told = problems(row)
    for name, found in row.items():
        if name == "title":
            continue
        if name in told:
            print(f"  {name:13} {told[name]}", flush=True)
            continue
        keys, cpu = found["keys_s"], found["cpu_us_per_key"]
        ends = f"[{keys['low']:.0f}..{keys['high']:.0f}]"
        text = f"  {name:13} {keys['median']:9.0f} keys/s {ends:20}"
        if operation != "exist":
            # What crosses a socket crosses it with headers; the Master's share is small.
            path = "tcp" if found["loopback_per_byte"] >= 1 else "host"
            text += f"  {keys['median'] * size / 1e9:7.3f} GB/s by {path:4}"
            text += f"  cpu {found['cpu_s_per_gb']:6.2f} s/GB"
        text += (f"  p50 {found['p50_us']:8.1f} us  p99 {found['p99_us']:8.1f} us  cpu "
                 f"{sum(cpu.values()):8.2f} ms/1000 keys, master {cpu.get('master', 0):7.2f}")
        print(text, "", ratio(row, "ours", name), "", ratio(row, TCP, name), flush=True)


def master_rate(row, name):
    """Keys per second of the Master's CPU; None for Redis, whose server holds the data too."""
    cpu = row.get(name, {}).get("cpu_us_per_key", {}).get("master") if name != "redis" else None
    return 1e6 / cpu if cpu else None


def print_master(row):
    print(f"\nMaster's CPU, {row['title']}")
    for name in row:
        keys = master_rate(row, name) if name != "title" else None
        if keys:
            print(f"  {name:13} {1e6 / keys:8.3f} us/key, {keys / 1e6:7.3f} M keys/s of a core ",
                  ratio(row, "ours", name, master_rate), "", ratio(row, TCP, name, master_rate),
                  flush=True)


def measure_tables(families, sides, options):
    """The families whose clusters live through all of them. Each row is measured once."""
    clusters = [Cluster(kind) for kind in sides]
    table = Table(clusters, options)
    document, known = {}, {}
    try:
        for cluster in clusters:
            table.start(cluster)
        for family in families:
            begun = time.monotonic()
            print(f"\n== {family}")
            document[family] = []
            for shape in rows_of(family):
                if options.only and f"{shape[2]}x{shape[3]}" not in options.only:
                    continue
                if shape not in known:
                    known[shape] = table.measure(shape)
                row = known[shape]
                if family == "store-master":
                    print_master(row)
                if family != "store-master" or problems(row):
                    print_row(row, shape)
                document[family].append({"shape": shape} | row)
            print(f"\n{family} took {time.monotonic() - begun:.0f} s", flush=True)
    finally:
        for cluster in clusters:
            cluster.stop()
    return document, table.failures


def fresh_life(kind):
    """One cluster from its start: GB/s into its segment right after setup, the first time, again."""
    cluster = Cluster(kind)
    try:
        cluster.start(SEGMENT)
        ask = cluster.driver.ask
        found = {"right after setup": ask(LIMIT, do="through", size=MIB, count=SOON)["gb_s"]}
        time.sleep(PAUSE)
        found["first use"] = ask(LIMIT, do="through", size=MIB, count=REST)["gb_s"]
        ask(LIMIT, do="finish")
        found["second use"] = ask(LIMIT, do="through", size=MIB, count=REST)["gb_s"]
        found["first/second"] = found["first use"] / found["second use"]
        if cluster.storage:
            found["setup ms"] = cluster.storage.ask(do="setup_time")["setup_ms"]
        return found
    finally:
        cluster.stop()


def measure_fresh(sides, options):
    results = {kind.name: [] for kind in sides}
    failures = []
    failed = set()
    for _, kind in harness.turns(sides, options.repeat):
        if kind.name in failed:
            continue
        try:
            found = fresh_life(kind)
            results[kind.name].append(found)
            print(f"  {kind.name:13} " + "  ".join(
                f"{key} {value:.2f}" for key, value in found.items()), file=sys.stderr)
        except (Failed, Gone) as error:
            failed.add(kind.name)
            failures.append(f"store-fresh: {error}")
    print(f"\n== store-fresh: puts of 1 MiB into a segment of {SEGMENT // MIB} MiB, GB/s")
    document = {}
    for name, found in results.items():
        if name in failed:
            document[name] = {"failed": next(f for f in failures if name in f)}
            print(f"  {name:13} FAILED, see below", flush=True)
            continue
        row = {key: harness.spread([f[key] for f in found]) for key in found[0]}
        document[name] = row
        print(f"  {name:13} " + "  ".join(
            f"{key} {value['median']:.2f} [{value['low']:.2f}..{value['high']:.2f}]"
            for key, value in row.items()), flush=True)
    return document, failures


def add_options(parser):
    parser.add_argument("--sides", nargs="+", help="of the store's tables (default: all)")


def run(families, options):
    sides, missing = kinds(options.build, options.sides)
    for line in missing:
        print(f"left out: {line}", file=sys.stderr)
    document, failures = {"store-sides": {kind.name: kind.note for kind in sides}}, []
    print("\n".join(f"{kind.name:13} {kind.note}" for kind in sides), flush=True)
    lasting = [family for family in families if family != "store-fresh"]
    if lasting:
        found, failures = measure_tables(lasting, sides, options)
        document |= found
    if "store-fresh" in families:
        document["store-fresh"], failed = measure_fresh(sides, options)
        failures += failed
    return document, failures


if __name__ == "__main__":
    harness.command([sys.modules[__name__]], __doc__.splitlines()[0])
