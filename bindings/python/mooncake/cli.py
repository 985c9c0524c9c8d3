"""Console scripts: each becomes the program of its name."""

import sys
from typing import NoReturn

from mooncake import _programs


def main() -> NoReturn:
    """mooncake_master: the directory of a store."""
    _programs.become("mooncake_master", *sys.argv[1:])


def metadata_server() -> NoReturn:
    """mooncake_http_metadata_server: where engines find each other."""
    _programs.become("mooncake_http_metadata_server", *sys.argv[1:])


def transfer_engine_bench() -> NoReturn:
    """transfer_engine_bench: how fast one engine reads from or writes to another."""
    _programs.become("transfer_engine_bench", *sys.argv[1:])


def command() -> NoReturn:
    """mooncake: the demo and the doctor."""
    _programs.become("mooncake", *sys.argv[1:])
