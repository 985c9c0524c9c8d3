"""Proves that a reader, a writer or an owner that stands still at any moment never makes a read give wrong bytes, over shared
memory and over TCP: objects of 1 MiB are upserted and read all the time, one of the three processes is stopped (SIGSTOP) at a
random moment, mostly in the middle of a copy, and goes on when the others have been at work on the same memory."""

import random

import pytest
from conftest import free_port
from load_rig import Load
from store_rig import MEBIBYTE



@pytest.mark.parametrize("stops", [30, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("forced", ["0", "1"], ids=["shared memory", "tcp"])
def test_a_stop_at_any_moment_gives_no_wrong_bytes(forced: str, stops: int) -> None:
    draw = random.Random(f"{stops} stops {forced}")
    load = Load(1, MC_FORCE_TCP=forced)
    try:
        # Room for few versions: what is replaced is written again at once.
        owner = load.add("own", f"127.0.0.1:{free_port()}", segment=8 * MEBIBYTE)
        load.wait("owner", lambda: load.sum(owner, "ready") == 1)
        common = {"keys": ["a", "b"], "size": MEBIBYTE}
        writer = load.add("write", "127.0.0.1", owners=[owner.name], **common)
        reader = load.add("read", "127.0.0.1", **common)
        load.wait_for_more([writer], "acknowledged", 3)
        load.wait_for_more([reader], "read", 10)
        for stop in range(stops):
            victim = [reader, writer, owner][stop % 3]
            load.listen_for(draw.random() * 0.02)
            victim.stop()
            busy, what, count = {0: (writer, "acknowledged", 8), 1: (reader, "read", 20), 2: (reader, "read", 1)}[stop % 3]
            goal = load.sum(busy, what) + count
            load.listen(lambda: load.sum(busy, what) >= goal, 0.3)
            victim.go_on()
            if stop % 10 == 9:
                load.wait_for_more([writer], "acknowledged", 1)
                load.wait_for_more([reader], "read", 10)
        assert load.wrong == []
    finally:
        load.end()
