"""The log's thread: nobody who speaks ever waits for whoever reads, and nothing is lost in silence."""

from __future__ import annotations

import errno
import io
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from penstock.kernel.log_writer import LogWriter

WAIT_S = 20.0


class Gate(io.RawIOBase):
    """A file that takes nothing until it is opened, as a pipe that nobody reads."""

    def __init__(self, *, shut: bool = True) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()
        self.taken: list[bytes] = []
        # What the next calls answer before anything is taken: a number of bytes, or an error.
        self.faults: list[int | OSError] = []
        if not shut:
            self.open.set()

    def write(self, data: memoryview) -> int:  # type: ignore[override]
        self.entered.set()
        assert self.open.wait(WAIT_S)
        fault = self.faults.pop(0) if self.faults else len(data)
        if isinstance(fault, OSError):
            raise fault
        self.taken.append(bytes(data[:fault]))
        return min(fault, len(data))

    @property
    def text(self) -> str:
        return b"".join(self.taken).decode()


def writer_to(target: io.RawIOBase, **bounds: int) -> LogWriter:
    writer = LogWriter(**bounds)
    writer.point_to(target)
    writer.say_lost = lambda lost: f"lost {lost}\n"
    return writer


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Make a shut gate; whatever a test leaves waiting at it goes on afterwards."""
    gate = Gate()
    yield gate
    gate.open.set()


@pytest.fixture
def pipe() -> Iterator[tuple[int, io.FileIO]]:
    reading, writing = os.pipe()
    with io.FileIO(writing, "w") as target, io.FileIO(reading):
        yield reading, target


def fill(target: io.FileIO) -> int:
    """Write to a pipe until nothing more fits; return how much that was."""
    os.set_blocking(target.fileno(), False)
    total = 0
    while written := target.write(b"\n" * 4096):
        total += written
    os.set_blocking(target.fileno(), True)
    return total


def stuck(gate: Gate, **bounds: int) -> LogWriter:
    """Return a writer whose thread waits with its first line in hand."""
    writer = writer_to(gate, **bounds)
    writer.write("first\n")
    assert gate.entered.wait(WAIT_S)
    return writer


def test_no_thread_is_started_before_there_is_a_line(gate) -> None:
    before = threading.active_count()
    writer = writer_to(gate)
    closed = writer.close()

    assert (closed, threading.active_count()) == (True, before)


def test_what_does_not_fit_pushes_out_the_oldest_lines_and_is_counted(gate) -> None:
    writer = stuck(gate, lines_max=10)
    for number in range(25):
        writer.write(f"line {number}\n")

    assert (writer.depth, writer.dropped) == (10, 15)
    gate.open.set()
    assert writer.close()
    assert gate.text == "first\nlost 15\n" + "".join(f"line {number}\n" for number in range(15, 25))


def test_bytes_are_bounded_too(gate) -> None:
    writer = stuck(gate, bytes_max=1000)
    for number in range(50):
        writer.write(f"{number:099}\n")

    assert (writer.depth, writer.waiting_bytes, writer.dropped) == (10, 1000, 40)


def test_the_newest_line_is_kept_however_long_it_is(gate) -> None:
    writer = stuck(gate, bytes_max=1000)
    writer.write("small\n")
    writer.write("x" * 5000 + "\n")

    assert (writer.depth, writer.dropped) == (1, 1)
    writer.write("after\n")
    gate.open.set()
    assert writer.close()
    assert gate.text == "first\nlost 2\nafter\n"


def test_a_loss_is_told_once(gate) -> None:
    writer = stuck(gate, lines_max=200)
    for number in range(300):
        writer.write(f"{number:050}\n")
    gate.open.set()
    assert writer.close()

    assert re.findall("lost.*\n", gate.text) == ["lost 100\n"]
    assert len(gate.taken) > 2, "so many lines are more than one batch"


def test_no_write_is_larger_than_a_pipe_takes_whole_unless_one_line_is(gate) -> None:
    writer = stuck(gate)
    lines = [f"{number:0{500 * (number % 3) + 20}}\n" for number in range(60)]
    lines.insert(7, "x" * 10_000 + "\n")
    for line in lines:
        writer.write(line)
    gate.open.set()
    assert writer.close()

    assert gate.text == "first\n" + "".join(lines)
    assert [len(each) for each in gate.taken if len(each) > 4096] == [10_001]
    assert all(each.endswith(b"\n") for each in gate.taken)


def test_lines_of_many_threads_come_whole_and_in_each_ones_order(pipe) -> None:
    reading, target = pipe
    handler = logging.StreamHandler(writer := writer_to(target))
    read: list[bytes] = []

    def say(who: int) -> None:
        for number in range(300):
            handler.handle(logging.makeLogRecord({"msg": f"{who} {number} {'x' * (number % 90)}."}))

    def listen() -> None:
        while piece := os.read(reading, 777):
            read.append(piece)

    threads = [threading.Thread(target=say, args=(who,)) for who in range(4)]
    listener = threading.Thread(target=listen)
    for thread in (listener, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    closed = writer.close(WAIT_S)
    target.close()
    listener.join()

    lines = b"".join(read).decode().splitlines()
    assert (closed, writer.dropped, len(lines)) == (True, 0, 1200)
    for who in range(4):
        mine = [line for line in lines if line.startswith(f"{who} ")]
        assert mine == [f"{who} {number} {'x' * (number % 90)}." for number in range(300)]


def test_a_pipe_nobody_reads_stops_nobody_and_shows_everything_that_was_kept(pipe) -> None:
    reading, target = pipe
    stuffing = fill(target)
    writer = writer_to(target, lines_max=100)
    for number in range(20_000):
        writer.write(f"{number}\n")
    kept = writer.depth
    in_time = writer.close(0.01)
    read = b""
    while not read.endswith(b"19999\n"):
        read += os.read(reading, 65536)

    lines = read[stuffing:].decode().splitlines()
    lost = sum(int(line.removeprefix("lost ")) for line in lines if line.startswith("lost "))
    numbers = [int(line) for line in lines if not line.startswith("lost ")]
    assert (kept, in_time) == (100, False)
    assert lost == writer.dropped
    assert len(numbers) + lost == 20_000
    assert numbers == sorted(numbers)


def test_a_non_blocking_pipe_is_waited_for(pipe) -> None:
    reading, target = pipe
    os.set_blocking(target.fileno(), False)
    writer = writer_to(target)
    for number in range(3000):
        writer.write(f"{number:099}\n")
    read = b""
    while len(read) < 300_000:
        read += os.read(reading, 65536)

    assert writer.close(WAIT_S)
    assert (read, writer.dropped) == (b"".join(b"%099d\n" % number for number in range(3000)), 0)


def test_a_full_non_blocking_pipe_is_asked_once_and_not_again_and_again(pipe) -> None:
    class Counted(io.FileIO):
        asked = 0

        def write(self, data: memoryview) -> int | None:  # type: ignore[override]
            self.asked += 1
            return super().write(data)

    reading, target = pipe
    stuffing = fill(target)
    os.set_blocking(target.fileno(), False)
    counted = Counted(target.fileno(), "w", closefd=False)
    writer = writer_to(counted)
    writer.write("line\n")
    in_time = writer.close(0.1)
    asked = counted.asked
    read = os.read(reading, stuffing)
    while not read.endswith(b"line\n"):
        read += os.read(reading, 65536)

    assert (in_time, asked <= 1) == (False, True)


def test_a_reader_that_left_is_survived_and_its_lines_are_counted() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with io.FileIO(writing, "w") as target:
        writer = writer_to(target)
        writer.write("one\n")
        ended = writer.close(WAIT_S)
        writer.write("two\n")
        ended_again = writer.close(WAIT_S)

    assert (ended, ended_again, writer.dropped) == (True, True, 2)


def test_a_file_that_was_closed_is_never_written_to_by_its_number(tmp_path) -> None:
    target = io.FileIO(tmp_path / "log", "w")
    writer = writer_to(target)
    target.close()
    with io.FileIO(tmp_path / "somebody else's", "w"):
        writer.write("secret\n")
        assert writer.close(WAIT_S)

    assert ((tmp_path / "somebody else's").read_bytes(), writer.dropped) == (b"", 1)


def test_after_a_disk_that_was_full_no_line_looks_like_the_end_of_another() -> None:
    full = OSError(errno.ENOSPC, "full")
    gate = Gate(shut=False)
    gate.faults = [4, full]
    writer = writer_to(gate)
    writer.write("torn apart\n")
    assert writer.close(WAIT_S)
    writer.write("whole\n")
    assert writer.close(WAIT_S)

    assert gate.text == "torn\nlost 1\nwhole\n"


def test_a_write_that_took_only_a_part_is_gone_on_with() -> None:
    gate = Gate(shut=False)
    gate.faults = [3, 1, 2]
    writer = writer_to(gate)
    writer.write("a whole line\n")

    assert writer.close(WAIT_S)
    assert gate.text == "a whole line\n"


def test_the_end_waits_for_the_last_lines_but_not_for_ever_and_not_twice(gate) -> None:
    writer = stuck(gate)
    writer.write("last\n")
    first = writer.close(0.01)
    began = time.monotonic()
    second = writer.close(WAIT_S)

    assert (first, second, time.monotonic() - began < WAIT_S / 2) == (False, False, True)
    gate.open.set()
    assert writer._thread is not None
    writer._thread.join(WAIT_S)
    assert gate.text == "first\nlast\n"
    assert writer.close(WAIT_S)


def test_a_line_after_the_end_is_written_too() -> None:
    gate = Gate(shut=False)
    writer = writer_to(gate)
    for number in range(50):
        writer.write(f"{number}\n")
        if number % 3:
            assert writer.close(WAIT_S)

    assert writer.close(WAIT_S)
    assert gate.text.split() == [str(number) for number in range(50)]


class Owner:
    """The lock of the thread that writes; a line comes at the very moment it is given back."""

    def __init__(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._steps = [before, after]
        self.acquire, self.locked = self._lock.acquire, self._lock.locked

    def release(self) -> None:
        steps, self._steps = self._steps, [_nothing, _nothing]
        steps[0]()
        self._lock.release()
        steps[1]()


def _nothing() -> None:
    return


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_line_that_comes_as_the_thread_ends_is_written_once(moment: str) -> None:
    def say() -> None:
        writer.write("late\n")

    gate = Gate(shut=False)
    writer = writer_to(gate)
    steps = {"before": _nothing, "after": _nothing, moment: say}
    writer._owner = Owner(**steps)  # type: ignore[assignment]
    writer.write("first\n")

    assert writer.close(WAIT_S)
    assert writer.close(WAIT_S)
    assert gate.text == "first\nlate\n"


def test_what_only_wakes_the_thread_is_never_counted_as_a_lost_line(gate) -> None:
    writer = stuck(gate, lines_max=3)
    for _ in range(3):
        assert not writer.close(0.0)
    for number in range(3):
        writer.write(f"{number}\n")

    assert (writer.depth, writer.dropped) == (3, 0)
    gate.open.set()
    assert writer._thread is not None
    writer._thread.join(WAIT_S)
    assert gate.text == "first\n0\n1\n2\n"


def test_without_a_thread_to_be_had_lines_wait_for_the_next_try(monkeypatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    gate = Gate(shut=False)
    writer = writer_to(gate)
    with monkeypatch.context() as poor:
        poor.setattr(threading.Thread, "start", refuse)
        writer.write("one\n")
        assert not writer.close()
    writer.write("two\n")

    assert writer.close(WAIT_S)
    assert gate.text == "one\ntwo\n"


def test_a_value_that_logs_while_it_is_told_stops_nobody() -> None:
    class Talker:
        def __str__(self) -> str:
            handler.handle(logging.makeLogRecord({"msg": "inner"}))
            return "outer"

    gate = Gate(shut=False)
    handler = logging.StreamHandler(writer := writer_to(gate))
    handler.handle(logging.makeLogRecord({"msg": "%s", "args": (Talker(),)}))

    assert writer.close(WAIT_S)
    assert gate.text == "inner\nouter\n"


def test_a_character_the_terminal_does_not_know_is_told_by_its_number() -> None:
    gate = Gate(shut=False)
    writer = writer_to(gate)
    writer.point_to(gate, "ascii")
    writer.write("gr\u00fc\udc80n\n")

    assert writer.close(WAIT_S)
    assert gate.text == "gr\\xfc\\udc80n\n"
