"""Tests that run alone: nobody else is in the room, and they need not wait for those that come later."""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from crowd import in_the_room

CONTEXT = multiprocessing.get_context("fork")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forks beside threads


def visit(folder: Path, alone: bool, pipe: Connection) -> None:
    pipe.send("comes")
    with in_the_room(folder, alone):
        pipe.send("in")
        pipe.recv()
    pipe.send("out")


def visitor(folder: Path, alone: bool) -> Connection:
    """Somebody who has come to the door."""
    ours, theirs = CONTEXT.Pipe()
    CONTEXT.Process(target=visit, args=(folder, alone, theirs), daemon=True).start()
    assert ours.poll(20) and ours.recv() == "comes"
    return ours


def is_in(pipe: Connection, seconds: float = 20.0) -> bool:
    return pipe.poll(seconds) and pipe.recv() == "in"


def goes(pipe: Connection) -> None:
    pipe.send("go")
    assert pipe.poll(20) and pipe.recv() == "out"


def leave_a_process_behind(folder: Path, pipe: Connection) -> None:
    with in_the_room(folder, alone=True):
        if not os.fork():
            pipe.recv()
            os._exit(0)
    pipe.send("out")


def test_a_process_that_is_left_behind_does_not_stay_in_the_room(tmp_path: Path) -> None:
    ours, theirs = CONTEXT.Pipe()
    CONTEXT.Process(target=leave_a_process_behind, args=(tmp_path, theirs), daemon=True).start()
    assert ours.poll(20) and ours.recv() == "out"
    late = visitor(tmp_path, True)
    assert is_in(late)
    goes(late)
    ours.send("end")


def test_others_share_the_room_and_one_has_it_alone(tmp_path: Path) -> None:
    first, second = visitor(tmp_path, False), visitor(tmp_path, False)
    assert is_in(first) and is_in(second)
    single = visitor(tmp_path, True)
    assert not is_in(single, 0.2)
    late = visitor(tmp_path, False)
    time.sleep(0.1)
    goes(first)
    assert not is_in(single, 0.1) and not is_in(late, 0.1)
    goes(second)
    assert is_in(single) and not is_in(late, 0.2)
    goes(single)
    assert is_in(late)
    goes(late)
