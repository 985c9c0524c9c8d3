"""A process that is told what to do by lines of JSON, and answers each with one: both ends of it."""

import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1


def serve(make):
    """The child's end: calls the method that each command names in `do`, until the parent is gone.

    A RuntimeError becomes an answer and the process lives on; anything else ends it.
    """
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not an answer
    worker = make()
    print(json.dumps({"ready": True}), file=out, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(worker, command["do"])(command)
        except RuntimeError as error:
            answer = {"failed": str(error)}
        print(json.dumps(answer), file=out, flush=True)
    os._exit(0)  # some peers' threads outlive their interpreter


def end_with_parent():
    """In a child, before it executes its program: dies with us, however we die."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Failed(RuntimeError):
    """The child says that it could not do it; it lives on."""


class Gone(RuntimeError):
    """The child has ended, or has not answered in time and was ended."""


class Child:
    """The parent's end."""

    def __init__(self, name, command, environment, log):
        self.name = name
        self.log = log
        with open(log, "ab") as errors:
            self.process = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=errors, preexec_fn=end_with_parent)
        self.received = b""
        os.set_blocking(self.process.stdout.fileno(), False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)

    @property
    def pid(self):
        return self.process.pid

    def ask(self, limit=60, **command):
        """The answer to one command; Failed when the child says so, Gone after `limit` seconds."""
        try:
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Gone(f"{self.name} has ended, see {self.log}") from None
        answer = self.answer(limit)
        if "failed" in answer:
            raise Failed(f"{self.name}: {answer['failed']}")
        return answer

    def answer(self, limit=60):
        """Counts waits of a second: time in which everything is stopped is not held against it."""
        while b"\n" not in self.received:
            waits = 0
            while not self.selector.select(1):
                waits += 1
                if waits >= limit:
                    self.process.kill()
                    raise Gone(f"{self.name} has not answered within {limit} s, see {self.log}")
            piece = os.read(self.process.stdout.fileno(), 1 << 16)
            if not piece:
                raise Gone(f"{self.name} has ended, see {self.log}")
            self.received += piece
        line, _, self.received = self.received.partition(b"\n")
        return json.loads(line)

    def pause(self):
        """It stands still until go_on(); some peers' threads look for work all the time."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def stop(self, limit=5):
        """Lets it end by itself, and makes it end after `limit` seconds."""
        self.go_on()
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        stop_process(self.process, limit)
        self.selector.close()
        self.process.stdout.close()


def stop_process(process, limit=5):
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
