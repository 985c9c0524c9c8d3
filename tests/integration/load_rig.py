"""A Master and processes that load a store, for tests that kill, stop and restart them. The parent reads what they say."""

import json
import os
import pathlib
import queue
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Any

from child_process import ChildProcess
from conftest import MasterProcess

WORKER = str(pathlib.Path(__file__).with_name("load_worker.py"))
PATIENCE = 60.0  # seconds that anything waited for may take, on a busy machine


class Process(ChildProcess):
    """One worker, in as many lives as it is given."""

    def __init__(self, load: "Load", role: str, name: str, **given: Any) -> None:
        self.load, self.role, self.name, self.given = load, role, name, given
        self.life = 0
        self.start()

    def start(self) -> None:
        self.life += 1
        given = {"master": self.load.master.address, "name": self.name, "life": self.life, "segment": 0,
                 "seed": self.load.seed + self.life, **self.given}
        self.process = subprocess.Popen(
            [sys.executable, WORKER, self.role, json.dumps(given)], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, env=os.environ | self.load.environment)
        threading.Thread(target=self._listen, args=(self.process, self.life), daemon=True).start()

    def _listen(self, process: subprocess.Popen[str], life: int) -> None:
        for line in process.stdout:
            if line.endswith("\n"):  # a killed one may leave half a line
                self.load.news.put((self, life, json.loads(line)))

    def say(self, word: str) -> None:
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def leave(self) -> None:
        """In peace: it closes its store."""
        self.process.stdin.close()
        self.process.wait(timeout=PATIENCE)


class Load:
    """`heard` is called with each message; counts of what was said are in `sums`."""

    def __init__(self, seed: int, *flags: str, **environment: str) -> None:
        self.seed, self.environment = seed, environment
        self.master = MasterProcess(*flags)
        self.news: queue.Queue[tuple[Process, int, dict[str, Any]]] = queue.Queue()
        self.processes: list[Process] = []
        self.sums: dict[tuple[str, str], int] = {}  # (process's name in `given` or role, what)
        self.wrong: list[str] = []
        self.heard: Callable[[Process, int, dict[str, Any]], None] = lambda *_: None

    def add(self, role: str, name: str, **given: Any) -> Process:
        self.processes.append(Process(self, role, name, **given))
        return self.processes[-1]

    def sum(self, process: Process, what: str) -> int:
        return self.sums.get((str(id(process)), what), 0)

    def take(self, message: tuple[Process, int, dict[str, Any]]) -> None:
        process, life, said = message
        if "wrong" in said or "late" in said:
            self.wrong.append(f"{process.role} {process.name}: {said}")
        for what in ("read", "missed", "acknowledged", "ready", "paused", "failed"):
            if what in said:
                key = (str(id(process)), what)
                self.sums[key] = self.sums.get(key, 0) + (said[what] if what in ("read", "missed") else 1)
        self.heard(process, life, said)

    def listen(self, until: Callable[[], bool], seconds: float = PATIENCE) -> bool:
        """Until something is so; False when it was not within the time."""
        end = time.monotonic() + seconds
        while not until():
            left = end - time.monotonic()
            if left <= 0:
                return False
            try:
                self.take(self.news.get(timeout=min(left, 0.05)))
            except queue.Empty:
                pass
        return True

    def listen_for(self, seconds: float) -> None:
        self.listen(lambda: False, seconds)

    def wait(self, what: str, until: Callable[[], bool], seconds: float = PATIENCE) -> None:
        assert self.listen(until, seconds), f"{what}: not within {seconds} s; {self.wrong}"

    def wait_for_more(self, processes: list[Process], what: str, count: int) -> None:
        goals = [(process, self.sum(process, what) + count) for process in processes]
        self.wait(f"{count} more {what}", lambda: all(self.sum(p, what) >= goal for p, goal in goals))

    def gauge(self, name: str) -> int:
        text = urllib.request.urlopen(self.master.metrics, timeout=10).read().decode()
        return int(re.search(rf"^{name} (\d+)$", text, re.M)[1])

    def end(self) -> None:
        for process in self.processes:
            process.go_on() if process.process.poll() is None else None
            process.kill()
            process.process.stdin.close()
        self.master.end()
