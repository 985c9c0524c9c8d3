"""Proves that the quick starts of README.md do what they say: the ten lines behind each marker run
as they are in a fresh interpreter, and print what the block behind them shows."""

import pathlib
import re
import subprocess
import sys

import pytest

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"
BLOCKS = re.compile(
    r"^<!-- quickstart -->\s*```python\n(.*?)^```\s*```text\n(.*?)^```", re.M | re.S)


def test_there_are_three_quick_starts() -> None:
    found = BLOCKS.findall(README.read_text())
    assert len(found) == 3, "README.md: python and text blocks behind <!-- quickstart -->"


@pytest.mark.parametrize("program, output", BLOCKS.findall(README.read_text()),
                         ids=["store", "batches", "engine"])
def test_a_quick_start_runs_as_printed(
        program: str, output: str, tmp_path: pathlib.Path) -> None:
    assert len(program.splitlines()) <= 10
    script = tmp_path / "quickstart.py"
    script.write_text(program)
    done = subprocess.run([sys.executable, "-W", "error", script], capture_output=True, text=True,
                          timeout=60, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, output, "")
