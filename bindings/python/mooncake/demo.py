"""`python -m mooncake.demo ARGS` is `mooncake demo ARGS`: a trace on the move, all checked."""

import sys
from typing import NoReturn

from mooncake import _programs


def main() -> NoReturn:
    _programs.become("mooncake", "demo", *sys.argv[1:])


if __name__ == "__main__":
    main()
