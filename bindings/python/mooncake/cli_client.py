"""Console script mooncake_client."""

import sys
from typing import NoReturn

from mooncake import _programs


def main() -> NoReturn:
    """mooncake_client: memory of this machine for a store's pool."""
    _programs.become("mooncake_client", *sys.argv[1:])


__all__ = ["main"]
