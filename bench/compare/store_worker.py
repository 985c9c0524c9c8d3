"""One process of one side of a Store: the one that gives memory, or the one that is measured."""

import ctypes
import gc
import os
import statistics
import sys
import time
from contextlib import suppress

import numpy as np

from lines import serve
from sides import map_private
from store_sides import MIB, Shape, open_store

REGION = 128 * MIB  # objects of one round lie in it, and never more than that is in the store
OBJECTS = 4096  # of one round at most, where a call does not name more
CALL = 32 * MIB  # of one call at most
VALUES = 8 * MIB  # of returned values that wait for their check
AT_LEAST = 3  # calls of a run


def loopback_bytes():
    with open("/proc/net/dev") as lines:
        return next(int(line.split()[9]) for line in lines if line.lstrip().startswith("lo:"))


class Meter:
    """Time, and CPU time of the processes of one side, of the sections that are measured.

    A process's CPU clock counts what /proc/PID/stat does, in nanoseconds instead of hundredths of
    a second; see clock_getcpuclockid(3).
    """

    def __init__(self, processes, limit):
        self.clocks = {role: (~pid << 3) | 2 for role, pid in processes.items()}
        self.cpu = dict.fromkeys(self.clocks, 0.0)
        self.limit = limit
        self.seconds, self.times = 0.0, []
        self.loopback = 0

    def done(self):
        return self.seconds >= self.limit and len(self.times) >= AT_LEAST

    def run(self, calls):
        """The results of the calls that were made before the time was over."""
        results, times = [], []
        missing = AT_LEAST - len(self.times)
        now = time.perf_counter
        wire = loopback_bytes()
        before = {role: time.clock_gettime(clock) for role, clock in self.clocks.items()}
        begun = last = now()
        end = begun + self.limit - self.seconds
        for call in calls:
            results.append(call())
            at = now()
            times.append(at - last)
            last = at
            if at >= end and len(times) >= missing:
                break
        for role, clock in self.clocks.items():
            self.cpu[role] += time.clock_gettime(clock) - before[role]
        self.loopback += loopback_bytes() - wire
        self.seconds += last - begun
        self.times += times
        return results


class Storage:
    """Gives a segment to the pool, and else does nothing."""

    def __init__(self, kind, server, segment):
        begun = time.perf_counter()
        self.side = open_store(kind, server, segment)
        self.opened = {"setup_ms": (time.perf_counter() - begun) * 1e3}

    def setup_time(self, _):
        return self.opened

    def place(self, _):
        """Of bare memory: where it lies."""
        return {"place": self.side.place}


class Driver:
    """Puts and gets. What it calls is made ready, and what it gets is checked, off the clock."""

    def __init__(self, kind, server):
        self.side = open_store(kind, server, 0)
        self.keep = []
        address = map_private(self.keep, REGION)
        self.side.lend(address, REGION)
        self.bytes = (ctypes.c_char * REGION).from_address(address)
        self.words = np.frombuffer(self.bytes, dtype=np.uint64)
        self.pattern = np.arange(REGION // 8, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        self.scratch = np.empty(CALL // 8, dtype=np.uint64)
        self.serial = 0
        self.loaded = {}
        gc.disable()

    # A round: objects 0..n-1, each with its slot of the region and content of its own.

    def objects(self, shape):
        most = max(shape.batch, min(REGION // shape.size, OBJECTS))
        return most // shape.batch * shape.batch

    def new_keys(self, count):
        self.serial += 1
        return [f"compare/{os.getpid()}/{self.serial}/{i}" for i in range(count)]

    def fill(self, count, size):
        end = count * size // 8
        np.add(self.pattern[:end], np.uint64(self.serial), out=self.words[:end])

    def value(self, size):
        return lambda offset: self.bytes[offset:offset + size]

    def calls(self, shape, keys):
        batch, size = shape.batch, shape.size
        value = self.value(size)
        for first in range(0, len(keys), batch):
            offsets = [(first + i) * size for i in range(batch)]
            named = keys[:1] if shape.operation == "hot" else keys[first:first + batch]
            yield self.side.call(shape, named, offsets, value)

    def expect(self, shape, results, wanted):
        for raw in results:
            answers = self.side.answers(shape, raw)
            wrong = [answer for answer in answers if answer != wanted]
            if wrong or len(answers) != shape.batch:
                raise RuntimeError(f"{len(wrong)} of {len(answers)} answers of a call are not "
                                   f"{wanted}, one is {wrong[:1]}")

    def check(self, shape, results, first, seed):
        """Every byte that calls from object `first` on have brought, against what was put."""
        words = shape.size // 8
        for raw in results:
            answers = self.side.answers(shape, raw)
            if len(answers) != shape.batch:
                raise RuntimeError(f"{len(answers)} answers for {shape.batch} keys")
            begin, end = first * words, (first + shape.batch) * words
            source = self.pattern[:words] if shape.operation == "hot" else self.pattern[begin:end]
            right = np.add(source, np.uint64(seed), out=self.scratch[:source.size])
            if all(isinstance(answer, int) and answer == shape.size for answer in answers):
                good = np.array_equal(self.words[begin:end], right)
            else:
                good = all(isinstance(answer, bytes) and len(answer) == shape.size and
                           np.array_equal(np.frombuffer(answer, dtype=np.uint64), piece)
                           for answer, piece in zip(answers, right.reshape(-1, words)))
            if not good:
                codes = [a for a in answers if not isinstance(a, bytes) and a != shape.size]
                what = f"no object, but {codes[0]}" if codes else "wrong bytes"
                raise RuntimeError(f"the call at object {first} gave {what}")
            first += shape.batch

    def get_round(self, shape, keys, seed, meter):
        """Gets all, section by section, so that what waits for its check is bounded."""
        calls = list(self.calls(shape, keys))
        if shape.api == "bytes" or self.side.gives_values:
            window = max(1, min(64, VALUES // (shape.size * shape.batch)))
        else:
            window = len(calls)
            self.words[:len(keys) * shape.size // 8].fill(0)
        for begin in range(0, len(calls), window):
            results = meter.run(calls[begin:begin + window])
            self.check(shape, results, begin * shape.batch, seed)
            if meter.done():
                return

    def put_round(self, shape, meter):
        keys = self.new_keys(self.objects(shape))
        self.fill(len(keys), shape.size)
        results = meter.run(list(self.calls(shape, keys)))
        keys = keys[:len(results) * shape.batch]
        try:
            self.expect(shape, results, 0)
            self.read_back(shape.size, keys, self.serial)
        except RuntimeError:
            with suppress(RuntimeError):  # what is wrong has been seen
                self.side.remove(keys)
            raise
        self.side.remove(keys)

    # Off the clock, by the widest calls that the side has.

    def widest(self, operation, size, count):
        """The shape for `count` objects: in batches if they can be."""
        batch = max(b for b in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
                    if b == 1 or (b * size <= CALL and count % b == 0))
        for shape in (Shape(operation, "into", size, batch), Shape(operation, "into", size, 1)):
            if not self.side.lacks(shape):
                return shape
        return Shape(operation, "bytes", size, 1)

    def read_back(self, size, keys, seed):
        self.get_round(self.widest("get", size, len(keys)), keys, seed, Meter({}, 1e9))

    def load(self, size, keys):
        shape = self.widest("put", size, len(keys))
        self.fill(len(keys), size)
        self.expect(shape, [call() for call in self.calls(shape, keys)], 0)

    # Commands

    def prepare(self, command):
        """Puts what a row will read. `lacks` names a call that is not there."""
        shape = Shape(*command["shape"])
        lacks = self.side.lacks(shape)
        if not lacks and shape.operation != "put":
            keys = self.new_keys(self.objects(shape))
            self.loaded = {"keys": keys, "seed": self.serial}
            self.load(shape.size, keys)
            self.read_back(shape.size, keys, self.serial)
        if not lacks and shape.operation == "exist":
            absent = self.calls(shape, self.new_keys(shape.batch))
            self.expect(shape, [call() for call in absent], 0)
        return {"lacks": lacks}

    def finish(self, _):
        """Removes what was put for a row."""
        loaded, self.loaded = self.loaded, {}
        if loaded:
            self.side.remove(loaded["keys"])
        return {}

    def run(self, command):
        """Rounds of calls for `seconds` of measured time."""
        shape = Shape(*command["shape"])
        meter = Meter(command["processes"] | {"driver": os.getpid()}, command["seconds"])
        while not meter.done():
            if shape.operation == "put":
                self.put_round(shape, meter)
            elif shape.operation == "exist":
                calls = list(self.calls(shape, self.loaded["keys"])) * 16
                self.expect(shape, meter.run(calls), 1)
            else:
                self.get_round(shape, self.loaded["keys"], self.loaded["seed"], meter)
        times = sorted(meter.times)
        return {"seconds": meter.seconds, "keys": len(times) * shape.batch, "cpu": meter.cpu,
                "loopback": meter.loopback, "p50_us": statistics.median(times) * 1e6,
                "p99_us": times[int(len(times) * 0.99)] * 1e6}

    def through(self, command):
        """GB/s of putting `count` objects of `size` bytes, each read back, all left in place."""
        shape = self.widest("put", command["size"], 1)
        meter = Meter({}, 1e9)
        parts = []
        for done in range(0, command["count"], REGION // shape.size):
            keys = self.new_keys(min(REGION // shape.size, command["count"] - done))
            self.fill(len(keys), shape.size)
            self.expect(shape, meter.run(list(self.calls(shape, keys))), 0)
            parts.append((keys, self.serial))
        for keys, seed in parts:
            self.read_back(shape.size, keys, seed)
        self.loaded.setdefault("keys", []).extend(key for keys, _ in parts for key in keys)
        return {"gb_s": command["count"] * shape.size / meter.seconds / 1e9}


def make(role, kind, server, segment):
    return Storage(kind, server, segment) if role == "storage" else Driver(kind, server)


if __name__ == "__main__":
    serve(lambda: make(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
