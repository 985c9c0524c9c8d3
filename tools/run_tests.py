#!/usr/bin/env python3
"""Builds and runs the tests, and ends with one line: `N passed, N failed[, N skipped]`.

  run_tests.py fast      preset dev: all test binaries not labelled slow, headers, Python suites
  run_tests.py slow      asan and tsan builds, fuzzers, slow tests, simulation with more seeds
  run_tests.py simulate  preset dev: the binaries labelled simulation
  options: -k TEXT (only names that contain it), -j N, --no-build

What there is to run comes from build/<preset>/tests.json (cmake/Tests.cmake) and from the folders
tests/*/ that hold test_*.py. Each binary runs in its own process group with a time-out. Counts are
test cases; a fuzzer, a plain binary, a failed build and a crash count as one each.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parent.parent
FUZZ_SECONDS = int(os.environ.get("MOONCAKE_FUZZ_SECONDS", "20"))
SLOW_SIM_SEEDS = os.environ.get("MOONCAKE_SIM_SEEDS", "700")
SANITIZER_SIM_SEEDS = "50"
NOT_UNDER_SANITIZERS = {"nosan", "integration", "compat", "slow"}
SANITIZER_SLOWDOWN = 5  # time-outs are stretched by this
PARALLEL_SUITES = {"tidy"}  # Python suites that start no server: may run beside others


@dataclass
class Job:
    """One process to run; `report` says how its counts are read."""

    name: str
    command: list
    report: str  # gtest | pytest | plain
    timeout: float
    serial: bool = False
    env: dict = field(default_factory=dict)
    empty_is_fine: bool = False


@dataclass
class Outcome:
    passed: int = 0
    failed: int = 0
    skipped: list = field(default_factory=list)  # "test: reason"
    problems: list = field(default_factory=list)  # names of failed tests, or what went wrong
    output: str = ""
    seconds: float = 0.0


def execute(job):
    """Runs the job in its own process group; kills the whole group at the time-out."""
    with tempfile.TemporaryDirectory(prefix="mooncake-test-") as scratch:
        report = pathlib.Path(scratch) / "report.xml"
        command = list(job.command)
        if job.report == "gtest":
            command.append(f"--gtest_output=xml:{report}")
        elif job.report == "pytest":
            command.append(f"--junitxml={report}")
        log = pathlib.Path(scratch) / "log"
        begin = time.monotonic()
        with open(log, "wb") as sink:
            process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink,
                env={**os.environ, **job.env}, start_new_session=True)
            timed_out = False
            try:
                process.wait(job.timeout)
            except subprocess.TimeoutExpired:
                timed_out = True
            finally:
                # Also after a normal end: nothing a test started may outlive it.
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()
        outcome = judge(job, process.returncode, timed_out, report, log.read_text(errors="replace"))
        outcome.seconds = time.monotonic() - begin
        return outcome


def judge(job, status, timed_out, report, output):
    outcome = Outcome(output=output)
    complete = False
    if job.report != "plain" and not timed_out:
        complete = read_report(report, outcome)
    elif job.report == "plain" and status == 0 and not timed_out:
        outcome.passed = 1
        return outcome
    if timed_out:
        outcome.problems.append(f"timed out after {job.timeout:.0f} s")
    elif not complete and job.report != "plain":
        outcome.problems.append(f"died: {describe(status)}")
    elif status != 0 and not outcome.failed and not (status == 5 and job.empty_is_fine):
        outcome.problems.append(f"ended with {describe(status)}")
    if job.report == "gtest" and not complete:
        outcome.passed = len(re.findall(r"^\[       OK \]", output, re.M))
        outcome.failed = len(set(re.findall(r"^\[  FAILED  \] (\S+) \(", output, re.M)))
    if outcome.problems and (timed_out or not complete or not outcome.failed):
        outcome.failed += 1
    if not (outcome.passed or outcome.failed or outcome.skipped or job.empty_is_fine):
        outcome.failed = 1
        outcome.problems.append("ran no test at all")
    return outcome


def describe(status):
    if status is not None and status < 0:
        return f"signal {signal.Signals(-status).name}"
    return f"exit status {status}"


def read_report(path, outcome):
    """Reads gtest's or pytest's XML. False when it is missing or cut short."""
    try:
        tree = ElementTree.parse(path)
    except (OSError, ElementTree.ParseError):
        return False
    for case in tree.iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        failures = case.findall("failure") + case.findall("error")
        skip = case.find("skipped")
        if failures:
            outcome.failed += 1
            outcome.problems.append(name)
        elif skip is not None or case.get("status") == "notrun":
            # gtest gives file:line first and the reason on the next line.
            reason = (skip.get("message") if skip is not None else "") or "disabled"
            lines = [line for line in reason.strip().splitlines() if line.strip()]
            outcome.skipped.append(f"{name}: {lines[-1] if lines else 'no reason given'}")
        else:
            outcome.passed += 1
    return True


class Runner:
    def __init__(self, options):
        self.options = options
        self.total = Outcome()
        self.lock = threading.Lock()
        self.done = 0

    def build(self, preset, targets=()):
        """Configures and builds; a failure counts as one failed test. True if it worked."""
        directory = ROOT / "build" / preset
        if self.options.no_build:
            return (directory / "tests.json").exists()
        print(f"-- building {preset} {' '.join(targets)}", flush=True)
        commands = [["cmake", "--preset", preset]]
        build = ["cmake", "--build", "--preset", preset, "-j", str(os.cpu_count() or 2)]
        if targets:
            build += ["--target", *targets]
        commands.append(build + ["--", "-k", "0"])
        for command in commands:
            begin = time.monotonic()
            # Its warnings and errors are shown as they come.
            if subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL).returncode != 0:
                self.count(Job(f"build {preset}", command, "plain", 0), Outcome(
                    failed=1, problems=["the build failed, see above"],
                    seconds=time.monotonic() - begin))
                return False
        return True

    def build_tests(self, preset, wanted):
        """Builds the test binaries whose set of labels satisfies `wanted`."""
        if not self.options.no_build:
            configure = ["cmake", "--preset", preset]
            if subprocess.run(configure, cwd=ROOT, stdin=subprocess.DEVNULL).returncode != 0:
                self.count(Job(f"configure {preset}", configure, "plain", 0), Outcome(
                    failed=1, problems=["cmake failed, see above"]))
                return False
        return self.build(preset, [test["name"] for test in manifest(preset)
                                   if test["kind"] != "fuzz" and wanted(set(test["labels"]))])

    def headers(self, preset):
        command = ["cmake", "--build", "--preset", preset, "--target", "headers_compile_alone",
                   "--", "-k", "0"]
        self.run([Job("headers_compile_alone", command, "plain", 1200)])

    def run(self, jobs):
        jobs = [job for job in jobs if not self.options.k or self.options.k in job.name]
        beside = [job for job in jobs if not job.serial]
        with concurrent.futures.ThreadPoolExecutor(self.options.j) as pool:
            waiting = {pool.submit(execute, job): job for job in beside}
            for future in concurrent.futures.as_completed(waiting):
                self.count(waiting[future], future.result())
        for job in jobs:
            if job.serial:
                self.count(job, execute(job))

    def count(self, job, outcome):
        with self.lock:
            self.done += 1
            mark = "FAIL" if outcome.failed else "ok  "
            skipped = f", {len(outcome.skipped)} skipped" if outcome.skipped else ""
            failed = f", {outcome.failed} failed" if outcome.failed else ""
            print(f"[{self.done:3}] {mark} {job.name:44} {outcome.passed} passed{failed}{skipped}"
                  f"  ({outcome.seconds:.1f} s)", flush=True)
            if outcome.failed:
                if outcome.output:
                    print(f"---- output of {job.name}: {' '.join(map(str, job.command))}")
                    print(outcome.output.rstrip())
                    print(f"---- end of {job.name}", flush=True)
                for problem in outcome.problems:
                    print(f"      FAILED {job.name}: {problem}", flush=True)
            for reason in outcome.skipped:
                print(f"      skipped {reason}", flush=True)
            self.total.passed += outcome.passed
            self.total.failed += outcome.failed
            self.total.skipped += outcome.skipped
            self.total.problems += [f"{job.name}: {problem}" for problem in outcome.problems]

    def finish(self):
        total = self.total
        if total.problems:
            print("failed:")
            for problem in total.problems:
                print(f"  {problem}")
        if total.passed + total.failed == 0:
            print("nothing ran")
            total.failed = 1
        line = f"{total.passed} passed, {total.failed} failed"
        if total.skipped:
            line += f", {len(total.skipped)} skipped"
        print(line, flush=True)
        return 1 if total.failed else 0


def manifest(preset):
    path = ROOT / "build" / preset / "tests.json"
    return json.loads(path.read_text()) if path.exists() else []


def without_aslr():
    """Command prefix for ThreadSanitizer, which dies at start where the kernel spreads mappings
    wider than it knows; empty where that can't be switched off."""
    command = ["setarch", os.uname().machine, "-R"]
    try:
        works = subprocess.run([*command, "true"], capture_output=True).returncode == 0
    except OSError:
        works = False
    return command if works else []


def binary_jobs(preset, wanted, env=None, stretch=1, prefix=""):
    """Jobs for the binaries of a preset whose set of labels satisfies `wanted`."""
    jobs = []
    launcher = without_aslr() if preset == "tsan" else []
    for test in manifest(preset):
        labels = set(test["labels"])
        if test["kind"] == "fuzz" or not wanted(labels):
            continue
        jobs.append(Job(
            prefix + test["name"], [*launcher, test["path"]], test["kind"], test["timeout"] * stretch,
            serial="serial" in labels, env={**build_env(preset), **(env or {})}))
    return jobs


def build_env(preset):
    build = ROOT / "build" / preset
    path = os.pathsep.join(filter(None, [str(build / "python"), os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": path, "MOONCAKE_BUILD_DIR": str(build),
            "MOONCAKE_BIN_DIR": str(build / "bin"), "PYTHONDONTWRITEBYTECODE": "1"}


def python_jobs(preset, slow):
    """One pytest process per folder; tests marked `slow` are left to test-slow."""
    jobs = []
    folders = sorted([*ROOT.glob("tests/*"), ROOT / "bindings/python/tests", ROOT / "tools/tests"])
    for folder in folders:
        tests = list(folder.rglob("test_*.py"))
        if not tests or slow and not any("mark.slow" in test.read_text() for test in tests):
            continue
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                   "-m", "slow" if slow else "not slow", str(folder)]
        jobs.append(Job(
            str(folder.relative_to(ROOT)), command, "pytest", 3000 if slow else 1200,
            serial=folder.name not in PARALLEL_SUITES, env=build_env(preset), empty_is_fine=True))
    return jobs


def fuzz_jobs():
    jobs = []
    for test in manifest("fuzz"):
        if test["kind"] != "fuzz":
            continue
        seeds = ROOT / "tests/fuzz/corpus" / test["name"].removeprefix("fuzz_")
        # New inputs go to the first folder, which stays in the build tree.
        found = ROOT / "build/fuzz/corpus" / test["name"]
        found.mkdir(parents=True, exist_ok=True)
        command = [test["path"], f"-max_total_time={FUZZ_SECONDS}", "-timeout=10",
                   "-rss_limit_mb=2048", "-print_final_stats=1",
                   f"-artifact_prefix={found.parent}/{test['name']}-", str(found)]
        command += [label for label in test["labels"] if label.startswith("-")]
        if seeds.is_dir():
            command.append(str(seeds))
        jobs.append(Job(test["name"], command, "plain", FUZZ_SECONDS + 90,
                        env={"ASAN_SYMBOLIZER_PATH": shutil.which("llvm-symbolizer-16") or ""}))
    return jobs


def fast(runner):
    if runner.build("dev"):
        runner.run(binary_jobs("dev", lambda labels: "slow" not in labels))
        runner.headers("dev")
    # After a failed build too: the style tests don't need one.
    runner.run(python_jobs("dev", slow=False))


def slow(runner):
    seeds = {"MOONCAKE_SIM_SEEDS": SANITIZER_SIM_SEEDS}
    options = {
        "asan": {"ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1:abort_on_error=0",
                 "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1", **seeds},
        # What is instantiated as Simulated runs on one thread.
        "tsan": {"TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
                 "GTEST_FILTER": "-Simulated/*", **seeds},
    }
    for preset, env in options.items():
        left_out = NOT_UNDER_SANITIZERS | ({"onethread"} if preset == "tsan" else set())

        def wanted(labels, left_out=left_out):
            return not labels & left_out

        if runner.build_tests(preset, wanted):
            runner.run(binary_jobs(preset, wanted, env=env, stretch=SANITIZER_SLOWDOWN,
                                   prefix=f"{preset}/"))
    if runner.build("fuzz", ["mooncake_fuzzers"]):
        runner.run(fuzz_jobs())
    if runner.build("dev"):
        more = {"MOONCAKE_SIM_SEEDS": SLOW_SIM_SEEDS}
        runner.run(binary_jobs(
            "dev", lambda labels: labels & {"slow", "simulation"}, env=more, stretch=10,
            prefix="slow/"))
        runner.run(python_jobs("dev", slow=True))


def simulate(runner):
    if runner.build("dev", ["mooncake_tests"]):
        runner.run(binary_jobs("dev", lambda labels: "simulation" in labels, stretch=100))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=["fast", "slow", "simulate"])
    parser.add_argument("-k", metavar="TEXT", help="only what has TEXT in its name")
    parser.add_argument("-j", metavar="N", type=int, default=2, help="at a time (default 2)")
    parser.add_argument("--no-build", action="store_true", help="run what is built")
    runner = Runner(parser.parse_args())
    {"fast": fast, "slow": slow, "simulate": simulate}[runner.options.mode](runner)
    return runner.finish()


if __name__ == "__main__":
    sys.exit(main())
