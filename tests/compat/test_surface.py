"""Proves that our Python names and signatures are those of the published package (surface.json),
except for what missing.txt still lists and for additions of ours in additions.txt; and that neither
list has a line too many.

A name is "module.name" or "module.Class.member". Signatures are the first lines of docstrings for
native functions, and what `inspect` says for Python ones.
"""

import importlib
import inspect
import json
import pathlib
from typing import Any, Iterator

import pytest

HERE = pathlib.Path(__file__).parent
NOT_PYTHON = {"programs"}  # flags of the programs


def surface() -> dict[str, Any]:
    modules = json.loads((HERE / "surface.json").read_text())
    return {name: content for name, content in modules.items() if name not in NOT_PYTHON}


def listed(name: str) -> list[str]:
    lines = (HERE / name).read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def our_module(name: str) -> Any:
    """The module, or None if there is none; what fails inside one is an error."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name + ".").startswith(error.name + "."):
            return None
        raise


def is_enum(contract: Any) -> bool:
    return isinstance(contract, dict) and list(contract) == ["enum"]


def walk(prefix: str, wanted: dict[str, Any], ours: Any) -> Iterator[tuple[str, Any, Any]]:
    """(dotted name, what the contract says, our object or None). Not below what is missing."""
    for name, contract in wanted.items():
        found = getattr(ours, name, None)
        yield f"{prefix}.{name}", contract, found
        if found is not None and isinstance(contract, dict) and not is_enum(contract):
            yield from walk(f"{prefix}.{name}", contract, found)


def everything() -> list[tuple[str, Any, Any]]:
    rows: list[tuple[str, Any, Any]] = []
    for name, content in surface().items():
        module = our_module(name)
        rows.append((name, content, module))
        if module is not None:
            rows += walk(name, content, module)
    return rows


def signatures(ours: Any, count: int) -> list[str]:
    """The first `count` lines of a native function's docstring."""
    return (ours.__doc__ or "").splitlines()[:count]


def python_signature(ours: Any) -> str:
    """As `inspect` prints it, without the type that is returned."""
    return str(inspect.signature(ours).replace(return_annotation=inspect.Signature.empty))


def test_a_name_is_there_or_listed_as_missing() -> None:
    absent = {name for name, _, ours in everything() if ours is None}
    lines = listed("missing.txt")
    assert len(lines) == len(set(lines)), "a name is listed twice"
    assert sorted(absent - set(lines)) == [], "neither there nor listed in missing.txt"
    assert sorted(set(lines) - absent) == [], "there, or never wanted: delete from missing.txt"


def test_native_signatures_are_those_of_the_contract() -> None:
    wrong = []
    for name, contract, ours in everything():
        if ours is not None and isinstance(contract, list):
            said = signatures(ours, len(contract))
            if said != contract:
                wrong.append(f"{name}: wanted {contract}, got {said}")
    assert wrong == []


def test_python_signatures_are_those_of_the_contract() -> None:
    wrong = []
    for name, contract, ours in everything():
        if ours is not None and isinstance(contract, str) and contract.startswith("("):
            wanted = contract.split(" -> ")[0]
            if python_signature(ours) != wanted:
                wrong.append(f"{name}: wanted {wanted}, got {python_signature(ours)}")
    assert wrong == []


def test_enums_have_the_values_of_the_contract() -> None:
    for name, contract, ours in everything():
        if ours is not None and is_enum(contract):
            assert {member.name: member.value for member in ours} == contract["enum"], name


def test_a_public_name_that_is_ours_alone_is_listed() -> None:
    extra = set()
    for name, contract, ours in everything():
        if ours is None or not isinstance(contract, dict) or is_enum(contract):
            continue
        names = vars(ours) if inspect.isclass(ours) else getattr(ours, "__all__", ())
        names = set(names) - set(getattr(ours, "__dataclass_fields__", ()))  # __init__ has them
        extra |= {f"{name}.{n}" for n in names if not n.startswith("_") and n not in contract}
    assert extra == set(listed("additions.txt"))


@pytest.mark.parametrize("module", ["mooncake.store", "mooncake.engine"])
def test_types_say_where_they_live(module: str) -> None:
    for name in importlib.import_module(module).__all__:
        found = getattr(importlib.import_module(module), name)
        if inspect.isclass(found):
            assert found.__module__ == module
