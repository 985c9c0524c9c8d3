"""The programs that travel with the package: where they are, and how one takes our place."""

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn


def find(name: str) -> Path:
    """The program `name`: in the installed package, or in the build tree that holds it."""
    package = Path(__file__).absolute().parent
    places = [package / "bin" / name, package.parent.parent / "bin" / name]
    for place in places:
        if os.access(place, os.X_OK):
            return place
    raise SystemExit(f"mooncake: no program {name}: looked for {places[0]} and {places[1]}")


def become(name: str, *arguments: str) -> NoReturn:
    """Replaces this process by the program, so that signals and exit status are its own."""
    path = find(name)
    sys.stdout.flush()
    sys.stderr.flush()
    # Python ignores it, and what is ignored stays so in the program.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execv(path, [str(path), *arguments])
