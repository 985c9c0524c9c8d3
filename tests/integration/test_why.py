"""Cases C10 (empty or missing), C11 (a put of an existing key) and C33 (a dead Master asked for existence), in the calls
that give reasons; and that every way in which a key goes is told afterwards, in Python and by `mooncake why` alike."""

import json
import os
import subprocess
from typing import Any

import numpy
import pytest
from conftest import MasterProcess, free_port
from mooncake.store import MooncakeDistributedStore, ReplicateConfig
from store_rig import INVALID, MEBIBYTE, opened, random_bytes, timed

MOONCAKE = os.path.join(os.environ.get("MOONCAKE_BIN_DIR", ""), "mooncake")


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([MOONCAKE, "why", *arguments], capture_output=True, text=True, timeout=60,
                          env=os.environ | environment)


def one(outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    assert len(outcomes) == 1
    return outcomes[0]


def test_c10_empty_and_missing_are_told_apart(store: MooncakeDistributedStore) -> None:
    empty, full = store.batch_put_outcomes(["empty", "full"], [b"", b"x"])
    assert empty["outcome"] == "error" and empty["code"] == INVALID
    assert empty["detail"] == "invalid argument: the value is empty"
    assert full == {"outcome": "stored", "code": 0, "reason": "", "detail": ""}
    got = store.batch_get_outcomes(["full", "empty"])
    assert got[0]["outcome"] == "hit" and got[0]["data"] == b"x"
    assert got[1]["outcome"] == "miss" and got[1]["reason"] == "never_stored"
    assert "data" not in got[1] and "never been stored" in got[1]["detail"]


def test_c11_a_put_of_an_existing_key_says_so(store: MooncakeDistributedStore) -> None:
    assert one(store.batch_put_outcomes(["k"], [b"A"]))["outcome"] == "stored"
    again = store.batch_put_outcomes(["new", "k"], [b"C", b"B"])
    assert [each["outcome"] for each in again] == ["stored", "already_present"]
    assert all(each["code"] == 0 for each in again)
    assert store.get("k") == b"A"
    assert store.upsert("k", b"B") == 0
    assert one(store.batch_get_outcomes(["k"]))["data"] == b"B"
    assert [event["event"] for event in store.why("k")["events"]] == [
        "published", "replaced", "published"]


def test_c33_a_dead_master_is_a_miss_with_its_reason(
        live_master: MasterProcess, capfd: pytest.CaptureFixture[str]) -> None:
    store = opened(live_master.address, timeout="1s")
    assert store.put("k", b"x") == 0
    live_master.kill()
    exists, seconds = timed(lambda: (store.is_exist("k"), store.batch_is_exist(["k", "l"])))
    assert exists == (0, [0, 0]) and seconds < 3
    for call in (store.batch_exist_outcomes, store.batch_get_outcomes):
        outcomes, seconds = timed(lambda: call(["k", "l"]))
        assert seconds < 2 and len(outcomes) == 2
        for outcome in outcomes:
            assert outcome["outcome"] == "miss" and outcome["reason"] == "master_unreachable"
            assert outcome["code"] in (-900, -901) and live_master.address in outcome["detail"]
    put = one(store.batch_put_outcomes(["m"], [b"x"]))
    assert put["outcome"] == "error" and live_master.address in put["detail"]
    why = store.why("k")
    assert why["state"] == "unknown" and why["reason"] == "master_unreachable"
    assert why["code"] in (-900, -901) and live_master.address in why["summary"]
    assert store.close() == 0
    said = [line for line in capfd.readouterr().err.splitlines() if "trying again" in line]
    assert len(said) <= 1, said


def test_a_store_that_is_not_set_up_says_so() -> None:
    store = MooncakeDistributedStore()
    for outcomes in (store.batch_put_outcomes(["k"], [b"x"]), store.batch_get_outcomes(["k"]),
                     store.batch_exist_outcomes(["k"])):
        assert one(outcomes)["outcome"] == "error" and one(outcomes)["code"] == INVALID
        assert one(outcomes)["reason"] == "not set up, or closed"
    assert store.why("k")["code"] == INVALID and store.why("k")["events"] == []


def test_arguments_are_judged(store: MooncakeDistributedStore) -> None:
    with pytest.raises(ValueError, match="1 for 2 keys"):
        store.batch_put_outcomes(["a", "b"], [b"x"])
    with pytest.raises(TypeError):
        store.batch_get_outcomes("abc")
    with pytest.raises(TypeError):
        store.why(1)
    assert store.why("")["code"] == INVALID
    assert store.why("k" * 4097)["code"] == INVALID
    long, good = store.batch_get_outcomes(["k" * 4097, "absent"])
    assert long["outcome"] == "error" and long["code"] == INVALID
    assert good["reason"] == "never_stored"
    refused = ReplicateConfig()
    refused.replica_num = 0
    outcome = one(store.batch_put_outcomes(["a"], [b"x"], refused))
    assert outcome["outcome"] == "error" and "replica_num" in outcome["detail"]
    assert store.batch_get_outcomes(numpy.array([b"absent"]))[0]["outcome"] == "miss"


def test_many_keys_are_explained(store: MooncakeDistributedStore) -> None:
    keys = [f"key/{i}" for i in range(1500)]  # more than one message of either kind
    values = [random_bytes(1 + i % 700) for i in range(len(keys))]
    stored = store.batch_put_outcomes(keys[::2], values[::2])
    assert {each["outcome"] for each in stored} == {"stored"}
    assert store.remove_by_regex("^key/1", force=True) > 0
    for key, value, outcome in zip(keys, values, store.batch_get_outcomes(keys)):
        was_stored = int(key[4:]) % 2 == 0
        if was_stored and not key.startswith("key/1"):
            assert outcome["data"] == value
        else:
            assert outcome["outcome"] == "miss"
            assert outcome["reason"] == ("removed" if was_stored else "never_stored"), key


def test_every_end_has_its_reason(live_master: MasterProcess) -> None:
    store = opened(live_master.address, global_segment_size="16MB")
    for key in ("by key", "by pattern"):
        assert store.put(key, b"x") == 0
    assert store.remove("by key") == 0 and store.remove_by_regex("pattern") == 1
    for i in range(20):
        assert store.put(f"block/{i}", random_bytes(MEBIBYTE)) == 0
    owner = opened(live_master.address)
    only_there = ReplicateConfig()
    only_there.preferred_segments = [owner.get_hostname()]
    assert store.put("lost", b"x", only_there) == 0
    owner.close()
    reasons = {key: store.why(key) for key in ("by key", "by pattern", "block/0", "lost", "absent")}
    assert {key: why["reason"] for key, why in reasons.items()} == {
        "by key": "removed", "by pattern": "removed", "block/0": "evicted", "lost": "lost",
        "absent": "never_stored"}
    assert reasons["by key"]["events"][0]["event"] == "removed"
    assert reasons["by pattern"]["events"][0]["event"] == "removed_by_pattern"
    assert reasons["block/0"]["events"][0]["event"].startswith("evicted_")
    assert reasons["block/0"]["events"][0]["size"] == MEBIBYTE
    assert reasons["lost"]["events"][0]["event"] == "owner_left"
    assert reasons["lost"]["events"][1]["writer"] == store.get_hostname()
    by_outcome = store.batch_exist_outcomes(list(reasons))
    assert [each["reason"] for each in by_outcome] == [why["reason"] for why in reasons.values()]
    store.close()


def test_the_command_says_it_in_a_sentence_and_in_json(live_master: MasterProcess) -> None:
    store = opened(live_master.address)
    assert store.put("here", b"12345") == 0 and store.put("gone", b"123") == 0
    assert store.remove("gone") == 0
    here = command("here", "--master", live_master.address)
    assert here.returncode == 0 and here.stderr == ""
    assert here.stdout.startswith(f"'here' is here: 5 bytes, 1 replica in {store.get_hostname()}")
    gone = command("gone", MOONCAKE_MASTER=live_master.address)
    assert gone.returncode == 1, gone
    lines = gone.stdout.splitlines()
    assert lines[0].startswith("'gone' was removed by its key, ")
    assert " removed " in lines[1] and " published " in lines[2] and "ago" in lines[1]
    document = json.loads(command("gone", "--json", "--master", live_master.address).stdout)
    ours = store.why("gone")
    assert document["reason"] == ours["reason"] == "removed" and document["key"] == "gone"
    assert document.keys() == ours.keys() - {"code"}
    assert [each["event"] for each in document["events"]] == ["removed", "published"]
    # It asks, and leaves everything as it is: no lease keeps the object.
    assert store.remove("here") == 0
    store.close()


def test_the_command_names_a_master_that_does_not_answer() -> None:
    address = f"127.0.0.1:{free_port()}"
    done = command("k", "--master", address)
    assert done.returncode == 3 and done.stdout == ""
    assert address in done.stderr and "--master" in done.stderr
    assert command("k", "--master", "no host").returncode == 2
    assert command("", "--master", address).returncode == 2
    assert command("k", "--master", "embedded").returncode == 2


def test_the_command_proves_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOONCAKE_CLUSTER_SECRET", "swordfish")
    master = MasterProcess()
    try:
        assert command("k", "--master", master.address).returncode == 1
        wrong = command("k", "--master", master.address, MOONCAKE_CLUSTER_SECRET="herring")
        assert wrong.returncode == 3 and "MOONCAKE_CLUSTER_SECRET" in wrong.stderr
    finally:
        master.end()
