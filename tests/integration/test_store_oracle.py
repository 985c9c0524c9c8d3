"""Proves the Python store against an oracle, which is a dict: random sequences of every call by three stores on one
Master, with leases that do not end and with leases that end at once; hypothesis shrinks a sequence that differs. `make test`
runs the same sequences each time, `make test-slow` others, whose number it prints: pytest --hypothesis-seed=N replays them."""

import inspect
import secrets
from collections.abc import Iterator

import pytest
import store_machine
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from mooncake.store import MooncakeDistributedStore
from store_machine import StoreCluster, StoreMachine
from store_oracle import Oracle

HOUR_MS = 3_600_000
OTHERS = {"setup", "init_all", "close", "health_check", "get_hostname"}  # other tests are about the life of a store


def how(examples: int, **others: object) -> settings:
    return settings(max_examples=examples, stateful_step_count=30, deadline=None, database=None,
                    suppress_health_check=list(HealthCheck), **others)


@pytest.fixture(params=[HOUR_MS, 1], ids=["long leases", "short leases"])
def machine(request: pytest.FixtureRequest) -> Iterator[type[StoreMachine]]:
    served = StoreCluster(request.param)

    class Machine(StoreMachine):
        cluster = served
        leases_end = request.param == 1

    yield Machine
    served.end()


def test_every_call_answers_as_the_oracle_does(machine: type[StoreMachine]) -> None:
    run_state_machine_as_test(machine, settings=how(150, derandomize=True))


@pytest.mark.slow
def test_long_random_sequences(machine: type[StoreMachine]) -> None:
    number = secrets.randbits(32)
    print(f"replay with --hypothesis-seed={number}")
    run_state_machine_as_test(seed(number)(machine), settings=how(600))


def test_no_call_is_left_out() -> None:
    source = inspect.getsource(store_machine)
    calls = {name for name in dir(MooncakeDistributedStore) if not name.startswith("_")} - OTHERS
    assert calls and not {name for name in calls if f".{name}" not in source}


class PutReplaces(Oracle):
    put = Oracle.upsert


class LargeSizesAreOneMore(Oracle):
    def size(self, key: bytes) -> int:
        size = super().size(key)
        return size + (size > 1000)


def difference(machine: type[StoreMachine], wrong: type[Oracle], how: settings) -> str:
    """What hypothesis says of the difference that it finds."""

    class Mistaken(machine):
        oracle_type = wrong

    with pytest.raises(AssertionError) as found:
        run_state_machine_as_test(Mistaken, settings=how)
    return "\n".join(found.value.__notes__)


@pytest.mark.parametrize("machine", [HOUR_MS], indirect=True, ids=["long leases"])
@pytest.mark.parametrize("wrong", [PutReplaces, LargeSizesAreOneMore])
def test_an_oracle_that_is_wrong_is_told_from_the_store(machine: type[StoreMachine], wrong: type[Oracle]) -> None:
    assert "state." in difference(machine, wrong, how(400, derandomize=True, phases=[Phase.generate]))


@pytest.mark.slow
@pytest.mark.parametrize("machine", [HOUR_MS], indirect=True, ids=["long leases"])
def test_what_differs_is_told_in_few_steps(machine: type[StoreMachine]) -> None:
    said = difference(machine, PutReplaces, how(400, derandomize=True, report_multiple_bugs=False))
    steps = said.count("\nstate.") - 1  # the last one is teardown()
    assert 1 <= steps <= 4, said
