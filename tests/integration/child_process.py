"""What tests do to a process that they have started."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any


class ChildProcess:
    process: subprocess.Popen[Any]

    def stop(self) -> None:
        """SIGSTOP; all its threads have stopped on return."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        self.stop()
        try:
            yield
        finally:
            self.go_on()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
