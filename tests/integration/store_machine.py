"""Random sequences of every call of the Python store, each answer held against the oracle's: three stores on one Master,
the last of them without a segment, all in this process, so that the copies' own bytes can be looked at."""

import contextlib
import ctypes
import re
import urllib.request
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy
from conftest import MasterProcess
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from mooncake.store import BufferPool, MooncakeDistributedStore, ReplicateConfig, SoftPinAction
from store_oracle import LONGEST_KEY, Oracle
from store_rig import INVALID, LEASED, MEBIBYTE, MISSING, NOT_REGISTERED, Memory, opened

SEGMENTS = (16 * MEBIBYTE, 16 * MEBIBYTE, 0)
ROOM = 512 << 10  # of each memory; six of the largest values fit
UNTOUCHED = 0xE5
BAD_METADATA_CALL = -1


class Key(bytes):
    def __repr__(self) -> str:
        return repr(bytes(self)) if len(self) < 100 else f"<{len(self)} bytes>"


KEYS = [b"a", b"b", b"x/1", b"x/2", "k\u00e4se".encode(), b"\xff\0z"]
BAD_KEYS = [b"", Key(b"k" * (LONGEST_KEY + 1))]
PATTERNS = ["^a", "x/", "1$", "s", "[ab]", "nothing", "", "(", "b{2,1}"]


class Value(NamedTuple):
    seed: int
    size: int

    def bytes(self) -> bytes:
        return numpy.random.default_rng(self.seed).bytes(self.size)


class Config(NamedTuple):
    """`refused`: before the call looks at anything else; `invalid`: as each of its objects."""

    name: str
    copies: int = 1
    refused: bool = False
    invalid: bool = False

    def make(self, count: int) -> ReplicateConfig | None:
        config = ReplicateConfig()
        config.replica_num = self.copies
        if self.name == "hard pin":
            config.with_hard_pin = True
        elif self.name == "soft pin":
            config.soft_pin_action, config.soft_pin_ttl_ms = SoftPinAction.ENABLE, 5
        elif self.name == "groups":
            config.group_ids = [str(i % 2) for i in range(count)]
        elif self.name == "a group too many":
            config.group_ids = ["g"] * (count + 1)
        elif self.name == "same node":
            config.prefer_alloc_in_same_node = True
        elif self.name == "time without pin":
            config.soft_pin_ttl_ms = 5
        return None if self.name == "none" else config


PLAIN = Config("none")
CONFIGS = [PLAIN, Config("two", 2), Config("four", 4), Config("hard pin"), Config("soft pin"),
           Config("groups"), Config("a group too many", refused=True),
           Config("same node", refused=True), Config("time without pin", invalid=True)]


# Most are in order: else few sequences would come far.
def mostly(good: list[Any], bad: list[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(*[st.sampled_from(good)] * 4, st.sampled_from(bad))


store_numbers = st.integers(0, len(SEGMENTS) - 1)
keys = st.one_of(st.sampled_from(KEYS[:2]), mostly(KEYS, BAD_KEYS))  # few: calls are to meet
batches = st.lists(keys, max_size=5)
sizes = mostly([1, 24, 4096, 4097, 70_000], [0])
values = st.builds(Value, st.integers(0, 255), sizes)
configs = st.one_of(st.just(PLAIN), st.sampled_from(CONFIGS))
pairs = st.lists(st.tuples(keys, values), max_size=5)
forms = st.sampled_from(["str", "bytes", "tuple", "array"])


def as_text(key: bytes) -> str | bytes:
    with contextlib.suppress(UnicodeDecodeError):
        return key.decode()
    return key


def in_form(names: list[bytes], form: str) -> Any:
    if form == "array":
        return numpy.array(names, dtype=f"S{max(map(len, names), default=1) or 1}")
    given = [as_text(name) if form == "str" else name for name in names]
    return tuple(given) if form == "tuple" else given


def numbers(given: list[int], form: str) -> Any:
    return numpy.array(given, dtype=numpy.uint64) if form == "array" else given


def codes_of(answer: Any, form: str) -> list[int]:
    assert isinstance(answer, numpy.ndarray if form == "array" else list), type(answer)
    return [int(code) for code in answer]


class Node:
    """A store with two memories: `home` is always registered, `spare` as often as `registered` says."""

    def __init__(self, master: str, segment: int) -> None:
        self.open_ = lambda: opened(master, global_segment_size=segment)
        self.spare = numpy.zeros(ROOM, numpy.uint8)
        self.open()

    def open(self) -> None:
        self.store: MooncakeDistributedStore = self.open_()
        self.name = self.store.get_hostname()
        self.home = Memory(self.store, ROOM)
        self.pool = BufferPool(self.store)
        self.registered = 0

    def close(self) -> None:
        self.pool.close()
        assert self.store.close() == 0

    def unregister_spare(self) -> None:
        while self.registered > 0:
            assert self.store.unregister_buffer(self.spare.ctypes.data) == 0
            self.registered -= 1

    def memory(self, spare: bool) -> tuple[numpy.ndarray, int, bool]:
        """Its bytes, its address, and whether it may be used."""
        if spare:
            return self.spare, self.spare.ctypes.data, self.registered > 0
        return self.home.bytes, self.home.address, True


class StoreCluster:
    """One Master and its stores, for as many sequences as wanted. `lease_ms`: of every object."""

    def __init__(self, lease_ms: int) -> None:
        self.master = MasterProcess(f"-default_kv_lease_ttl={lease_ms}")
        self.nodes = [Node(self.master.address, segment) for segment in SEGMENTS]

    def gauge(self, name: str) -> int:
        text = urllib.request.urlopen(self.master.metrics, timeout=10).read().decode()
        return int(re.search(rf"^{name} (\d+)$", text, re.M)[1])

    def end(self) -> None:
        for node in self.nodes:
            node.close()
        self.master.end()


class StoreMachine(RuleBasedStateMachine):
    cluster: StoreCluster
    oracle_type: type[Oracle] = Oracle
    leases_end = False  # whether the Master's are so short that a removal can wait for their end

    def __init__(self) -> None:
        super().__init__()
        self.nodes = self.cluster.nodes
        self.oracle = self.oracle_type(sum(segment > 0 for segment in SEGMENTS))

    def store(self, number: int) -> MooncakeDistributedStore:
        return self.nodes[number].store

    def teardown(self) -> None:
        """What is left is readable everywhere, and then nothing is: the Master's sums say so."""
        try:
            left = sorted(self.oracle.objects)
            for node in self.nodes:
                wrong = [(key, len(got), len(self.oracle.get(key)), node.store.batch_get_outcomes([key])[0]["reason"],
                          node.store.get(key) == self.oracle.get(key))
                         for key, got in zip(left, node.store.get_batch(left)) if got != self.oracle.get(key)]
                assert not wrong, f"{node.name}: (key, bytes, expected, reason now, right now): {wrong}"
            assert self.cluster.gauge("master_key_count") == len(left)
        finally:
            removed = self.store(0).remove_all(force=True)
            for node in self.nodes:
                node.unregister_spare()
        assert removed == len(left)
        for name in ("master_key_count", "master_allocated_bytes", "master_open_grants",
                     "master_soft_pin_key_count", "master_hard_pin_key_count"):
            assert self.cluster.gauge(name) == 0, name

    def before_removal(self) -> None:
        """Where leases are short, all there are end: so does a younger one, of a key of its own."""
        if not self.leases_end:
            return
        store = self.store(0)
        assert store.put("probe", b"x") == 0 and store.get("probe") == b"x"
        while (code := store.remove("probe")) == LEASED:
            pass
        assert code == 0
        self.oracle.forget_leases()

    def write(self, upsert: bool) -> Callable[[bytes, bytes, int], int]:
        return self.oracle.upsert if upsert else self.oracle.put

    def expected_writes(self, written: list[tuple[bytes, bytes]], config: Config, upsert: bool) -> list[int]:
        if config.refused or config.invalid:
            return [INVALID] * len(written)
        return [self.write(upsert)(key, value, config.copies) for key, value in written]

    # Bytes.

    @rule(n=store_numbers, key=keys, value=values, config=configs, upsert=st.booleans())
    def put(self, n: int, key: bytes, value: Value, config: Config, upsert: bool) -> None:
        call = self.store(n).upsert if upsert else self.store(n).put
        expected = self.expected_writes([(key, value.bytes())], config, upsert)
        assert call(as_text(key), value.bytes(), config.make(1)) == expected[0]

    @rule(n=store_numbers, key=keys, parts=st.lists(values, max_size=3), config=configs, upsert=st.booleans())
    def put_parts(self, n: int, key: bytes, parts: list[Value], config: Config, upsert: bool) -> None:
        call = self.store(n).upsert_parts if upsert else self.store(n).put_parts
        pieces = [part.bytes() for part in parts]
        expected = self.expected_writes([(key, b"".join(pieces))], config, upsert)
        assert call(key, *pieces, config=config.make(1)) == expected[0]

    @rule(n=store_numbers, written=pairs, form=forms, config=configs, upsert=st.booleans(), short=st.booleans())
    def put_batch(self, n: int, written: list[tuple[bytes, Value]], form: str, config: Config, upsert: bool,
                  short: bool) -> None:
        call = self.store(n).upsert_batch if upsert else self.store(n).put_batch
        names = [key for key, _ in written]
        given = [value.bytes() for _, value in written]
        if short and written:
            assert call(in_form(names, form), given[1:], config.make(len(names))) == INVALID
        expected = self.expected_writes(list(zip(names, given)), config, upsert)
        first = INVALID if config.refused else next((code for code in expected if code), 0)
        assert call(in_form(names, form), given, config.make(len(names))) == first

    @rule(n=store_numbers, key=keys)
    def get(self, n: int, key: bytes) -> None:
        assert self.store(n).get(as_text(key)) == self.oracle.get(key)

    @rule(n=store_numbers, names=batches, form=forms)
    def get_batch(self, n: int, names: list[bytes], form: str) -> None:
        assert self.store(n).get_batch(in_form(names, form)) == [self.oracle.get(key) for key in names]

    @rule(n=store_numbers, key=keys)
    def get_buffer(self, n: int, key: bytes) -> None:
        handle = self.store(n).get_buffer(as_text(key))
        assert (b"" if handle is None else bytes(handle)) == self.oracle.get(key)

    @rule(n=store_numbers, key=keys)
    def get_pinned(self, n: int, key: bytes) -> None:
        pinned = self.store(n).get_pinned(as_text(key))
        value = self.oracle.get(key)
        if pinned is not None:
            assert value and bytes(pinned) == value
            pinned.release()

    @rule(n=store_numbers, names=batches, form=forms)
    def batch_get_buffer(self, n: int, names: list[bytes], form: str) -> None:
        handles = self.store(n).batch_get_buffer(in_form(names, form))
        found = [b"" if handle is None else bytes(handle) for handle in handles]
        assert found == [self.oracle.get(key) for key in names]

    # Questions.

    @rule(n=store_numbers, key=keys)
    def is_exist(self, n: int, key: bytes) -> None:
        assert self.store(n).is_exist(as_text(key)) == self.oracle.exist(key)

    @rule(n=store_numbers, names=batches, form=forms)
    def batch_is_exist(self, n: int, names: list[bytes], form: str) -> None:
        found = codes_of(self.store(n).batch_is_exist(in_form(names, form)), form)
        assert found == [self.oracle.exist(key) for key in names]

    @rule(n=store_numbers, key=keys)
    def get_size(self, n: int, key: bytes) -> None:
        assert self.store(n).get_size(as_text(key)) == self.oracle.size(key)

    def check_copies(self, key: bytes, replicas: list[Any]) -> None:
        """As many as wanted, in different segments, each with the bytes of the object."""
        assert len(replicas) == self.oracle.copies(key)
        places = [replica.get_memory_descriptor().buffer_descriptor for replica in replicas]
        names = {place.transport_endpoint for place in places}
        assert len(names) == len(places) and names <= {node.name for node in self.nodes}
        for place in places:
            assert ctypes.string_at(place.buffer_address, place.size) == self.oracle.get(key)

    @rule(n=store_numbers, key=keys)
    def get_replica_desc(self, n: int, key: bytes) -> None:
        self.check_copies(key, self.store(n).get_replica_desc(as_text(key)))

    @rule(n=store_numbers, names=batches, form=forms)
    def batch_get_replica_desc(self, n: int, names: list[bytes], form: str) -> None:
        found = self.store(n).batch_get_replica_desc(in_form(names, form))
        by_key = {key.encode() if isinstance(key, str) else key: found[key] for key in found}
        for key in set(names):
            self.check_copies(key, by_key.pop(key, []))
        assert not by_key

    # With reasons. What became of a key in an earlier sequence may be one, so that only test_why.py proves which.

    @rule(n=store_numbers, written=pairs, form=forms, config=configs)
    def batch_put_outcomes(self, n: int, written: list[tuple[bytes, Value]], form: str, config: Config) -> None:
        expected = []
        for key, value in written:
            there = key in self.oracle.objects
            (code,) = self.expected_writes([(key, value.bytes())], config, False)
            expected.append((code, "error" if code else "already_present" if there else "stored"))
        names, given = [key for key, _ in written], [value.bytes() for _, value in written]
        found = self.store(n).batch_put_outcomes(in_form(names, form), given, config.make(len(names)))
        assert [(each["code"], each["outcome"]) for each in found] == expected

    def check_outcomes(self, names: list[bytes], found: list[dict[str, Any]], with_data: bool) -> None:
        assert len(found) == len(names)
        for key, outcome in zip(names, found):
            there = self.oracle.exist(key)
            assert outcome["outcome"] == {1: "hit", 0: "miss", INVALID: "error"}[there]
            assert outcome["code"] == {1: 0, 0: MISSING, INVALID: INVALID}[there]
            assert ("data" in outcome) == (with_data and there == 1)
            assert not with_data or there != 1 or outcome["data"] == self.oracle.get(key)
            assert there != 0 or outcome["reason"] in ("never_stored", "removed", "lost"), outcome

    @rule(n=store_numbers, names=batches, form=forms)
    def batch_get_outcomes(self, n: int, names: list[bytes], form: str) -> None:
        self.check_outcomes(names, self.store(n).batch_get_outcomes(in_form(names, form)), True)

    @rule(n=store_numbers, names=batches, form=forms)
    def batch_exist_outcomes(self, n: int, names: list[bytes], form: str) -> None:
        self.check_outcomes(names, self.store(n).batch_exist_outcomes(in_form(names, form)), False)

    @rule(n=store_numbers, key=keys)
    def why(self, n: int, key: bytes) -> None:
        """Takes no lease, which the removals after it show."""
        said = self.store(n).why(as_text(key))
        if self.oracle.wrong(key):
            assert said["code"] == INVALID
            return
        found = self.oracle.objects.get(key)
        assert said["code"] == 0 and said["state"] == ("published" if found else "absent")
        assert (said["reason"] == "none") == (found is not None)
        if found:
            assert said["size"] == len(found.value) and len(set(said["segments"])) == found.copies
            assert said["events"][0]["event"] == "published" and said["events"][0]["size"] == len(found.value)

    # Removal.

    @rule(n=store_numbers, key=keys, force=st.booleans())
    def remove(self, n: int, key: bytes, force: bool) -> None:
        self.before_removal()
        assert self.store(n).remove(as_text(key), force) == self.oracle.remove(key, force)

    @rule(n=store_numbers, names=batches, form=forms, force=st.booleans())
    def batch_remove(self, n: int, names: list[bytes], form: str, force: bool) -> None:
        self.before_removal()
        codes = codes_of(self.store(n).batch_remove(in_form(names, form), force), form)
        assert codes == [self.oracle.remove(key, force) for key in names]

    @rule(n=store_numbers, pattern=st.sampled_from(PATTERNS), force=st.booleans())
    def remove_by_regex(self, n: int, pattern: str, force: bool) -> None:
        self.before_removal()
        removed = self.store(n).remove_by_regex(pattern, force)
        assert removed == self.oracle.remove_by_regex(pattern, force)

    @rule(n=store_numbers, force=st.booleans())
    def remove_all(self, n: int, force: bool) -> None:
        self.before_removal()
        assert self.store(n).remove_all(force) == self.oracle.remove_all(force)

    # Registered memory.

    @rule(n=store_numbers)
    def register(self, n: int) -> None:
        node = self.nodes[n]
        assert node.store.register_buffer(node.spare.ctypes.data, ROOM) == 0
        node.registered += 1

    @rule(n=store_numbers)
    def unregister(self, n: int) -> None:
        node = self.nodes[n]
        code = node.store.unregister_buffer(node.spare.ctypes.data)
        assert code == (0 if node.registered else NOT_REGISTERED)
        node.registered = max(0, node.registered - 1)

    def fill(self, memory: numpy.ndarray, pieces: list[bytes]) -> list[int]:
        """Puts the pieces one after the other, with gaps; gives their offsets."""
        offsets, end = [], 7
        for piece in pieces:
            memory[end:end + len(piece)] = numpy.frombuffer(piece, numpy.uint8)
            offsets.append(end)
            end += len(piece) + 13
        return offsets

    def write_from(self, key: bytes, value: bytes, usable: bool, config: Config, upsert: bool) -> int:
        """The code for one object of a call that takes registered memory."""
        if not value:
            return 0
        if not usable:
            return NOT_REGISTERED
        return INVALID if config.invalid else self.write(upsert)(key, value, config.copies)

    @rule(n=store_numbers, key=keys, value=values, spare=st.booleans(), config=configs, upsert=st.booleans())
    def put_from(self, n: int, key: bytes, value: Value, spare: bool, config: Config, upsert: bool) -> None:
        node = self.nodes[n]
        memory, address, usable = node.memory(spare)
        (at,) = self.fill(memory, [value.bytes()])
        call = node.store.upsert_from if upsert else node.store.put_from
        code = call(as_text(key), address + at, value.size, config.make(1))
        expected = INVALID if config.refused else self.write_from(key, value.bytes(), usable, config, upsert)
        assert code == expected

    @rule(n=store_numbers, key=keys, head=values, body=values, spare=st.booleans(), config=configs)
    def put_from_with_metadata(self, n: int, key: bytes, head: Value, body: Value, spare: bool,
                               config: Config) -> None:
        memory, address, usable = self.nodes[n].memory(spare)
        to = self.fill(memory, [head.bytes(), body.bytes()])
        code = self.store(n).put_from_with_metadata(
            as_text(key), address + to[1], address + to[0], body.size, head.size, config.make(1))
        value = head.bytes() + body.bytes()
        if config.refused or not value or not usable:
            assert code == BAD_METADATA_CALL
        else:
            assert code == -self.write_from(key, value, usable, config, False)

    @rule(n=store_numbers, written=pairs, form=forms, spare=st.booleans(), config=configs, upsert=st.booleans())
    def batch_put_from(self, n: int, written: list[tuple[bytes, Value]], form: str, spare: bool, config: Config,
                       upsert: bool) -> None:
        node = self.nodes[n]
        memory, address, usable = node.memory(spare)
        names = [key for key, _ in written]
        given = [value.bytes() for _, value in written]
        to = [address + at for at in self.fill(memory, given)]
        call = node.store.batch_upsert_from if upsert else node.store.batch_put_from
        config = PLAIN if config.name == "groups" else config
        codes = codes_of(call(in_form(names, form), numbers(to, form), numbers(list(map(len, given)), form),
                              config.make(len(names))), form)
        assert codes == [INVALID if config.refused else self.write_from(key, value, usable, config, upsert)
                         for key, value in zip(names, given)]
        if len(names) > 1:
            assert codes_of(call(in_form(names, form), to[1:], [1]), form) == [INVALID] * len(names)

    @rule(n=store_numbers, written=st.lists(st.tuples(keys, st.lists(values, max_size=3)), max_size=2), form=forms,
          spare=st.booleans(), config=configs)
    def batch_put_from_multi_buffers(self, n: int, written: list[tuple[bytes, list[Value]]], form: str, spare: bool,
                                     config: Config) -> None:
        memory, address, usable = self.nodes[n].memory(spare)
        names = [key for key, _ in written]
        pieces = [[part.bytes() for part in parts] for _, parts in written]
        to = iter(self.fill(memory, [piece for row in pieces for piece in row]))
        rows = [numbers([address + next(to) for _ in row], form) for row in pieces]
        lengths = [numbers([len(piece) for piece in row], form) for row in pieces]
        codes = codes_of(self.store(n).batch_put_from_multi_buffers(
            in_form(names, form), rows, lengths, config.make(len(names))), form)
        refused = config.refused and config.name != "same node"  # which is for this call
        assert codes == [INVALID if refused else self.write_from(key, b"".join(row), usable, config, False)
                         for key, row in zip(names, pieces)]

    def check_room(self, memory: numpy.ndarray, at: int, code: int, key: bytes) -> None:
        """A value that was read lies where it should."""
        if code > 0:
            assert memory[at:at + code].tobytes() == self.oracle.get(key)

    @rule(n=store_numbers, key=keys, room=sizes, spare=st.booleans())
    def get_into(self, n: int, key: bytes, room: int, spare: bool) -> None:
        memory, address, usable = self.nodes[n].memory(spare)
        memory[:] = UNTOUCHED
        code = self.store(n).get_into(as_text(key), address + 5, room)
        expected = self.oracle.get_into(key, room) if usable or room == 0 else NOT_REGISTERED
        assert code == expected
        self.check_room(memory, 5, code, key)
        end = 5 + (code if code > 0 else room)
        assert (memory[:5] == UNTOUCHED).all() and (memory[end:] == UNTOUCHED).all()

    @rule(n=store_numbers, wanted=st.lists(st.tuples(keys, sizes), max_size=4), form=forms, spare=st.booleans())
    def batch_get_into(self, n: int, wanted: list[tuple[bytes, int]], form: str, spare: bool) -> None:
        memory, address, usable = self.nodes[n].memory(spare)
        memory[:] = UNTOUCHED
        names, rooms = [key for key, _ in wanted], [room for _, room in wanted]
        to = [5 + 80_000 * i for i in range(len(wanted))]
        codes = codes_of(self.store(n).batch_get_into(
            in_form(names, form), numbers([address + at for at in to], form), numbers(rooms, form)), form)
        assert codes == [self.oracle.get_into(key, room) if usable or room == 0 else NOT_REGISTERED
                         for key, room in wanted]
        for key, at, code in zip(names, to, codes):
            self.check_room(memory, at, code, key)

    @rule(n=store_numbers, wanted=st.lists(st.tuples(keys, sizes, sizes), max_size=3), form=forms,
          spare=st.booleans())
    def batch_get_into_multi_buffers(self, n: int, wanted: list[tuple[bytes, int, int]], form: str,
                                     spare: bool) -> None:
        memory, address, usable = self.nodes[n].memory(spare)
        names = [key for key, _, _ in wanted]
        to = [(5 + 160_000 * i, 80_000 + 160_000 * i) for i in range(len(wanted))]
        codes = codes_of(self.store(n).batch_get_into_multi_buffers(
            in_form(names, form), [numbers([address + a, address + b], form) for a, b in to],
            [numbers([one, two], form) for _, one, two in wanted]), form)
        assert codes == [self.oracle.get_into(key, one + two) if usable or one + two == 0 else NOT_REGISTERED
                         for key, one, two in wanted]
        for (key, one, _), (a, b), code in zip(wanted, to, codes):
            if code > 0:
                first = memory[a:a + min(one, code)].tobytes()
                assert first + memory[b:b + code - len(first)].tobytes() == self.oracle.get(key)

    @rule(n=store_numbers, key=keys, value=values, m=store_numbers)
    def lease(self, n: int, key: bytes, value: Value, m: int) -> None:
        """Through leases of a pool: put by one store, read by another."""
        with self.nodes[n].pool.acquire(max(value.size, 1)) as source:
            source.buffer[:value.size] = value.bytes()
            code = self.store(n).put_from(as_text(key), source.ptr, value.size)
            assert code == self.write_from(key, value.bytes(), True, PLAIN, False)
            with self.nodes[m].pool.acquire(70_000) as target:
                read = self.store(m).get_into(as_text(key), target.ptr, target.size)
                assert read == self.oracle.get_into(key, target.size)
                if read > 0:
                    assert bytes(target.buffer[:read]) == self.oracle.get(key)

    @rule(n=store_numbers)
    def reopen(self, n: int) -> None:
        """A store that leaves takes with it what lies nowhere else, and no registration stays."""
        node = self.nodes[n]
        for key in list(self.oracle.objects):
            replicas = self.store(0).get_replica_desc(key)
            self.check_copies(key, replicas)
            found = self.oracle.objects[key]
            places = [replica.get_memory_descriptor().buffer_descriptor for replica in replicas]
            found.copies -= node.name in [place.transport_endpoint for place in places]
            if found.copies == 0:
                del self.oracle.objects[key]
        node.close()
        node.open()
