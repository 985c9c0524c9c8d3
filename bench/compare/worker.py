"""One process of one side. Reads commands as lines of JSON, answers each with one line."""

import ctypes
import resource
import statistics
import sys
import time

import numpy as np

from lines import serve
from sides import open_side


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Worker:
    def __init__(self, kind, memory, size):
        begun = time.perf_counter()
        self.side = open_side(kind, memory)
        self.opened_seconds = time.perf_counter() - begun
        self.size = size
        begun = time.perf_counter()
        self.address = self.side.allocate(size)
        self.allocated_seconds = time.perf_counter() - begun
        raw = (ctypes.c_uint64 * (size // 8)).from_address(self.address)
        self.words = np.frombuffer(raw, dtype=np.uint64)
        self.pattern = np.arange(size // 8, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        self.calls = {}
        self.buffers = []

    def describe(self, _):
        return self.side.describe(self.address, self.size)

    def connect(self, command):
        self.side.connect(command["peer"], self.address, self.size)
        return {}

    def fill(self, command):
        np.add(self.pattern, np.uint64(command["seed"]), out=self.words)
        return {}

    def check(self, command):
        """Whether the first `bytes` of the region hold the pattern of `seed`."""
        words = command["bytes"] // 8
        good = np.array_equal(self.words[:words],
                              self.pattern[:words] + np.uint64(command["seed"]))
        return {"good": bool(good)}

    def run(self, command):
        """Calls for `seconds`, going round in the region; the first round is complete."""
        length, batch = command["length"], command["batch"]
        key = (command["operation"], length, batch)
        if key not in self.calls:
            slots = [offset for offset in range(0, self.size - length + 1, length)]
            groups = [slots[i:i + batch] for i in range(0, len(slots) - batch + 1, batch)]
            groups = groups[:command["max_groups"]]
            self.calls = {key: [self.side.prepare(command["operation"], g, length) for g in groups]}
        calls = self.calls[key]
        times, failures = [], 0
        clock = time.perf_counter
        cpu, begun = cpu_seconds(), clock()
        end = begun + command["seconds"]
        last, n = begun, 0
        while last < end or n < command["at_least"]:
            if calls[n % len(calls)]() != 0:
                failures += 1
            now = clock()
            times.append(now - last)
            last, n = now, n + 1
        elapsed = last - begun
        times.sort()
        return {"seconds": elapsed, "calls": n, "failures": failures, "bytes": n * batch * length,
                "touched": min(n, len(calls)) * batch * length, "cpu": cpu_seconds() - cpu,
                "p50_us": statistics.median(times) * 1e6,
                "p99_us": times[int(len(times) * 0.99)] * 1e6}

    def register(self, command):
        """Microseconds per registration and its taking back, with `live` other buffers: medians of bursts.

        The buffers have been written to: who registers memory has had it filled, or will.
        """
        while len(self.buffers) < command["live"]:
            buffer = np.ones(4096, dtype=np.uint8)
            if self.side.register(buffer.ctypes.data, buffer.size) != 0:
                raise RuntimeError("register failed")
            self.buffers.append(buffer)
        extra = [np.ones(4096, dtype=np.uint8) for _ in range(command["calls"])]
        addresses = [buffer.ctypes.data for buffer in extra]
        bursts = []
        until = time.perf_counter() + command["seconds"]
        while len(bursts) < 5 or time.perf_counter() < until:
            begun = time.perf_counter()
            for address in addresses:
                self.side.register(address, 4096)
            middle = time.perf_counter()
            for address in addresses:
                self.side.unregister(address)
            bursts.append((middle - begun, time.perf_counter() - middle))
        register, unregister = (statistics.median(times) for times in zip(*bursts))
        return {"register_us": register / len(extra) * 1e6,
                "unregister_us": unregister / len(extra) * 1e6}

    def opened(self, _):
        """Seconds until there was an engine, and until it had its memory."""
        return {"open_ms": self.opened_seconds * 1e3, "allocate_ms": self.allocated_seconds * 1e3}

    def passes(self, command):
        """GB/s of the first and of the second way through the peer's region, piece by piece."""
        piece = command["piece"]
        calls = [self.side.prepare("write", [offset], piece)
                 for offset in range(0, self.size, piece)]
        rates = []
        for _ in range(2):
            begun = time.perf_counter()
            failures = sum(call() != 0 for call in calls)
            if failures:
                raise RuntimeError(f"{failures} writes failed")
            rates.append(self.size / (time.perf_counter() - begun) / 1e9)
        return {"first": rates[0], "second": rates[1]}

    def idle(self, command):
        """Share of one core that the process takes while nothing is asked of it."""
        before = cpu_seconds()
        time.sleep(command["seconds"])
        return {"share": (cpu_seconds() - before) / command["seconds"]}

    def cpu(self, _):
        return {"cpu": cpu_seconds()}

    def path(self, _):
        return {"path": self.side.path()}


if __name__ == "__main__":
    serve(lambda: Worker(sys.argv[1], sys.argv[2], int(sys.argv[3])))
