"""Proves that the quick start of README.md does what it says: the ten lines behind the marker run
as they are in a fresh interpreter, and print what the block behind them shows."""

import pathlib
import re
import subprocess
import sys

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"
BLOCKS = re.compile(
    r"^<!-- quickstart -->\s*```python\n(.*?)^```\s*```text\n(.*?)^```", re.M | re.S)


def test_the_quick_start_runs_as_printed(tmp_path: pathlib.Path) -> None:
    found = BLOCKS.search(README.read_text())
    assert found, "README.md: no python and text block behind <!-- quickstart -->"
    program, output = found.groups()
    assert len(program.splitlines()) <= 10
    script = tmp_path / "quickstart.py"
    script.write_text(program)
    done = subprocess.run([sys.executable, "-W", "error", script], capture_output=True, text=True,
                          timeout=60, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, output, "")
