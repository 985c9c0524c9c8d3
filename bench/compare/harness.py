"""What the drivers share: peers' packages, taking turns, medians, and the command line."""

import argparse
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import venv

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PLACE = ROOT / "build/compare"  # of the peers and of the logs
KIB, MIB = 1 << 10, 1 << 20
PACKAGES = {"stock": ["mooncake-transfer-engine-non-cuda", "numpy"],
            "nixl": ["nixl-cu12", "numpy"],
            "redis": ["redis[hiredis]", "numpy"]}


def peer_python(name):
    """The interpreter of a peer's own environment; made when it is missing."""
    home = PLACE / name
    python = home / "bin/python"
    if not (home / "complete").exists():
        if home.is_symlink():  # making it would empty the folder that the link leads to
            raise SystemExit(f"{home} is a link to {os.readlink(home)}, where there is no complete "
                             "environment; remove the link, and one will be made in its place")
        print(f"installing {' '.join(PACKAGES[name])} into {home}", file=sys.stderr)
        venv.create(home, with_pip=True, clear=True)
        # NIXL asks for torch with all of CUDA; the adapter does without.
        options = ["--no-deps"] if name == "nixl" else []
        subprocess.run([python, "-m", "pip", "install", "-q", *options, *PACKAGES[name]],
                       check=True, stdout=sys.stderr)
        (home / "complete").touch()
    return str(python)


def environment_of(settings):
    """Ours, without settings of the caller's that would steer one of the sides."""
    kept = {key: value for key, value in os.environ.items()
            if not key.startswith(("MC_", "UCX_", "MOONCAKE_"))}
    return kept | {"GLOG_minloglevel": "2", "NIXL_LOG_LEVEL": "ERROR", **settings}


def log_of(name):
    return PLACE / f"{name.replace('/', '-').replace(', ', '-').replace(' ', '-')}.log"


def turns(sides, repetitions):
    """(repetition, side) for all of them; within each repetition in an order of its own."""
    for repetition in range(repetitions):
        for side in random.sample(sides, len(sides)):
            yield repetition, side


def spread(values):
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def size_text(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def command(drivers, description):
    """The command line over some drivers.

    A driver is a module with NAME, FAMILIES, run(families, options) -> (document, failures), and
    optionally add_options(parser).
    """
    families = [family for driver in drivers for family in driver.FAMILIES]
    names = [driver.NAME for driver in drivers]
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--family", nargs="+", choices=["all", *names, *families], default=["all"],
                        help="tables to make; a driver's name stands for all of its own")
    parser.add_argument("--repeat", type=int, default=7, help="runs of each row (default 7)")
    parser.add_argument("--seconds", type=float, default=0.3, help="of each run (default 0.3)")
    parser.add_argument("--only", nargs="*", help="shapes, bytes by pieces of a call: 4096x128")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release",
                        help="folder with our build (default build/release)")
    parser.add_argument("--seed", type=int, default=1, help="of the order of turns (default 1)")
    parser.add_argument("--json", type=pathlib.Path, help="write the results here")
    for driver in drivers:
        getattr(driver, "add_options", lambda _: None)(parser)
    options = parser.parse_args()
    options.build = options.build.resolve()
    random.seed(options.seed)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    PLACE.mkdir(parents=True, exist_ok=True)
    results, failures = {}, []
    for driver in drivers:
        chosen = [family for family in driver.FAMILIES
                  if {"all", driver.NAME, family} & set(options.family)]
        if chosen:
            document, failed = driver.run(chosen, options)
            results |= document
            failures += failed
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    for failure in failures:
        print(f"FAILED {failure}", file=sys.stderr)
    sys.exit(1 if failures else 0)
