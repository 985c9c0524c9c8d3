"""Proves that the soak runs, moves and verifies data, and survives its own events, in twenty seconds (the long run is
`make soak`); and that it fails, and says why, when a worker finds a wrong byte, falls silent, takes too much, or ends by
itself."""

import pathlib
import subprocess
import sys

import pytest
import soak

SOAK = pathlib.Path(__file__).with_name("soak.py")


@pytest.mark.parametrize("program, limit, words", [
    ("import sys; print('{\"wrong\": \"byte 7\"}', flush=True); sys.stdin.read()", {},
     ["WRONG BYTE", "byte 7"]),
    ("import sys; sys.stdin.read()", {"HANG_SECONDS": 0.5}, ["HANG", "said nothing"]),
    ("import sys; f = [open('/dev/null') for _ in range(300)]; sys.stdin.read()", {},
     ["LEAK", "descriptors"]),
    ("import sys; m = b'x' * (90 << 20); sys.stdin.read()", {"MOST_PRIVATE_MIB": 64},
     ["LEAK", "MiB"]),
    ("raise SystemExit('gone')", {}, ["ended by itself", "status 1", "gone"]),
    ("print('{\"over\": true}')", {}, ["nothing was verified"])])
def test_what_goes_wrong_fails_it(program: str, limit: dict[str, float], words: list[str],
                                  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(program)
    monkeypatch.setattr(soak, "WORKER", worker)
    for name, value in limit.items():
        monkeypatch.setattr(soak, name, value)
    run = soak.Soak(10, 1, tmp_path)
    # Nobody is stopped or killed: what is proven is who notices.
    monkeypatch.setattr(run, "happen", lambda _: None)
    if words == ["nothing was verified"]:
        monkeypatch.setattr(run, "seconds", 0.0)
    try:
        with pytest.raises(soak.Failed) as failure:
            run.run()
        assert all(word in str(failure.value) for word in words), failure.value
    finally:
        run.kill_all()


def test_growth_of_those_that_live_long_fails_it(tmp_path: pathlib.Path) -> None:
    run = soak.Soak(4 * soak.WARM_SECONDS, 1, tmp_path)
    run.compare_elders()
    run.slots[0].late = soak.Usage(descriptors=soak.GROWTH_DESCRIPTORS + 1)
    with pytest.raises(soak.Failed, match="LEAK: process 0 grew by"):
        run.compare_elders()


def test_growth_is_not_judged_before_the_elders_are_warm(tmp_path: pathlib.Path) -> None:
    run = soak.Soak(20, 1, tmp_path)
    run.slots[0].late = soak.Usage(descriptors=soak.GROWTH_DESCRIPTORS + 1)
    run.compare_elders()


@pytest.mark.slow
def test_twenty_seconds() -> None:
    done = subprocess.run([sys.executable, str(SOAK), "--seconds", "20"], capture_output=True,
                          text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("soak passed: "), done.stdout
