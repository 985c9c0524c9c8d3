"""Proves that a store under load survives what happens to its processes: in each of 20 rounds the Master, an owner of memory,
a writer or a reader is killed, stopped for a while or restarted. No byte is ever wrong, every call is back within its
deadline, the keys of a dead writer are usable again within the client's time to live and 5 s, what was acknowledged is there
as long as its owner and the Master live, and the Master's numbers equal reality."""

import pathlib
import random
import secrets
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from conftest import free_port
from load_rig import PATIENCE, Load, Process
from load_worker import VERSIONS_OF_A_LIFE, open_store, value_of, version_of
from store_rig import MEBIBYTE

ROUNDS = 20
TTL = 2  # seconds; of clients
SIZE = 100_000
SEGMENT = 48 * MEBIBYTE
KEYS = {writer: [f"{writer}/{i}" for i in range(30)] for writer in range(2)}
EVERY_KEY = [key for keys in KEYS.values() for key in keys]
ROLES = ("master", "owner", "writer", "reader")
WAYS = ("kill", "stop", "restart")


class Rounds:
    def __init__(self, seed: int, state: pathlib.Path) -> None:
        self.random = random.Random(seed)
        self.load = load = Load(seed, f"-client_ttl={TTL}", "-default_kv_lease_ttl=500", f"-state_dir={state}")
        self.load.heard = self.hear
        self.round = 0
        # key -> version, where it lies, and the round in which that was said
        self.acknowledged: dict[str, tuple[int, list[str], int]] = {}
        self.owners = [load.add("own", f"127.0.0.1:{free_port()}", segment=SEGMENT) for _ in range(2)]
        names = [owner.name for owner in self.owners]
        load.wait("owners", lambda: all(load.sum(owner, "ready") for owner in self.owners))
        self.writers = [load.add("write", "127.0.0.1", keys=keys, size=SIZE, owners=names) for keys in KEYS.values()]
        self.readers = [load.add("read", "127.0.0.1", keys=EVERY_KEY, size=SIZE) for _ in range(2)]
        self.checker: Any = open_store(load.master.address, "127.0.0.1", 0)
        assert self.checker is not None

    def end(self) -> None:
        if self.checker is not None:
            self.checker.close()
        self.load.end()

    def hear(self, process: Process, life: int, said: dict[str, Any]) -> None:
        if "acknowledged" in said and life == process.life:
            self.acknowledged[said["acknowledged"]] = (said["version"], said["places"], self.round)

    # What happens to a process.

    def strike(self, role: str, way: str) -> Callable[[list[str]], bool]:
        """Says of which places the objects may be lost."""
        if role == "master":
            return self.strike_master(way)
        victim = self.random.choice({"owner": self.owners, "writer": self.writers, "reader": self.readers}[role])
        if way == "stop":
            victim.stop()
            self.load.listen_for(self.random.uniform(0.1, 1.5))
            victim.go_on()
        else:
            victim.kill() if way == "kill" else victim.leave()
            died = time.monotonic()
            if role == "writer":
                self.use_keys_of(victim, died)
            self.load.listen_for(self.random.uniform(0, 1))
            ready = self.load.sum(victim, "ready")
            victim.start()
            self.load.wait(f"{role} again", lambda: self.load.sum(victim, "ready") > ready)
        # For the Master an owner may have been dead while it was stopped.
        return lambda places: role == "owner" and victim.name in places

    def strike_master(self, way: str) -> Callable[[list[str]], bool]:
        master = self.load.master
        if way == "stop":
            with master.stopped():
                self.load.listen_for(self.random.uniform(0.1, 1.5))
            return lambda places: False
        if way == "restart":
            master.process.send_signal(signal.SIGTERM)
            assert master.process.wait(timeout=PATIENCE) == 0
        master.kill()
        self.load.listen_for(self.random.uniform(0, 1))
        master.start()
        return lambda places: True

    def use_keys_of(self, writer: Process, died: float) -> None:
        for key in writer.given["keys"]:
            version = writer.life * VERSIONS_OF_A_LIFE + VERSIONS_OF_A_LIFE // 2 + self.round
            while True:
                code = self.checker.put(key, value_of(key, version, SIZE))
                value = self.checker.get(key)
                if code == 0 and value:
                    break
                assert time.monotonic() - died < TTL + 5, f"{key} is not usable: {code}, {len(value)}"
            assert version_of(key, value, SIZE) is not None
            self.acknowledged.pop(key, None)

    # What holds afterwards.

    def check(self) -> None:
        busy = [*self.writers, *self.readers]
        paused = {process: self.load.sum(process, "paused") for process in busy}
        for process in busy:
            process.say("pause")
        self.load.wait("pause", lambda: all(self.load.sum(p, "paused") > n for p, n in paused.items()))
        for key in EVERY_KEY:
            value = self.checker.get(key)
            version = version_of(key, value, SIZE) if value else 0
            assert version is not None, f"{key}: wrong bytes"
            if key in self.acknowledged:
                least, places, said = self.acknowledged[key]
                assert version >= least, f"{key}: {version} instead of {least}, told in round {said}, at {places}"
        self.load.wait("sums", self.sums_are_right, TTL + 5)
        for process in busy:
            process.say("go on")

    def sums_are_right(self) -> bool:
        expected = {"master_key_count": sum(self.checker.batch_is_exist(EVERY_KEY)), "master_open_grants": 0,
                    "master_active_clients": len(self.load.processes) + 1,
                    "master_total_capacity_bytes": len(self.owners) * SEGMENT}
        self.found = {name: self.load.gauge(name) for name in expected}
        return self.found == expected

    def run(self, role: str, way: str) -> None:
        load = self.load
        load.wait_for_more(self.writers, "acknowledged", 5)
        load.wait_for_more(self.readers, "read", 10)
        self.round += 1
        may_be_lost = self.strike(role, way)
        load.wait_for_more(self.writers, "acknowledged", 3)
        load.wait_for_more(self.readers, "read", 10)
        # Only now, as what was told before it may have been on its way.
        self.acknowledged = {key: told for key, told in self.acknowledged.items() if not may_be_lost(told[1])}
        self.check()
        assert load.wrong == []

    def all_is_given_back(self) -> None:
        for process in [*self.writers, *self.readers]:
            process.leave()
        assert self.checker.remove_all(force=True) >= 0
        self.load.wait("room", lambda: self.load.gauge("master_allocated_bytes") == 0, TTL + 5)
        assert self.load.gauge("master_key_count") == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_20_rounds_of_kills_stops_and_restarts(tmp_path: pathlib.Path) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    schedule = [(role, way) for role in ROLES for way in WAYS]
    schedule += [(draw.choice(ROLES), draw.choice(WAYS)) for _ in range(ROUNDS - len(schedule))]
    draw.shuffle(schedule)
    rounds = Rounds(seed, tmp_path)
    try:
        for role, way in schedule:
            print(f"round {rounds.round + 1}: {way} {role}")
            rounds.run(role, way)
        rounds.all_is_given_back()
    finally:
        rounds.end()
