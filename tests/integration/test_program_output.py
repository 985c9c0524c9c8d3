"""A stream that can't be written is no reason for an abort: what a program says is lost, its status is not."""

import os
import subprocess

import pytest

BIN = os.environ.get("MOONCAKE_BIN_DIR", "")


@pytest.mark.parametrize("command, status", [
    (["mooncake_client", "--bogus"], 2), (["mooncake_master", "--bogus"], 2), (["mooncake_http_metadata_server", "--bogus"], 2),
    (["transfer_engine_bench", "--bogus"], 2), (["mooncake", "demo", "--seed=x"], 2),
    (["mooncake", "demo", "--requests=3", "--block-bytes=4KiB", "--segment-size=8MiB"], 0)])
def test_a_full_stderr_changes_no_status(command: list[str], status: int) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([os.path.join(BIN, command[0]), *command[1:]], stdout=subprocess.PIPE,
                              stderr=full, timeout=120)
    assert done.returncode == status


def test_a_result_that_nobody_can_read_is_a_failure() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([os.path.join(BIN, "mooncake"), "demo", "--requests=3", "--block-bytes=4KiB",
                               "--segment-size=8MiB"], stdout=full, stderr=subprocess.PIPE, timeout=120)
    assert done.returncode != 0 and b"stdout" in done.stderr
