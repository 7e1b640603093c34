"""Log lines leave the loop here: a bounded queue of lines, and one thread that may wait for whoever reads them.

A pipe that nobody reads, a stopped terminal or a slow disk must not stop the services. What does not fit pushes out the
oldest, because the newest lines are the ones that say how things are, or what a process died of; the loss is counted
and told in its place, once there is room again.

Any thread may write, also from a `__del__` that the collector runs in the middle of a write: nothing here waits for a
lock, and each number has one side that moves it.
"""

from __future__ import annotations

import atexit
import io
import os
import queue
import select
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TextIO

from penstock.kernel.channel import Full

if TYPE_CHECKING:
    from penstock.kernel.inventory import Inventory

LINES_MAX: Final = 4096
BYTES_MAX: Final = 1 << 20
END_S: Final = 1.0
"""How long the end of a process waits for its last lines."""
# A pipe takes so much whole: what another process writes to it stands before or behind our lines, never in one.
_BATCH_BYTES: Final = select.PIPE_BUF
# No line at all: it only wakes the thread.
_WAKE: Final = b""


class LogWriter:
    """A stream for a log handler. `write` never waits; the thread starts with the first line and ends with `close`."""

    __slots__ = (
        "_ending", "_given_up", "_lines", "_owner", "_pushed_out", "_put_bytes", "_taken_bytes", "_target", "_thread",
        "_told", "_torn",
        "_unwritten", "bytes_max", "dress", "encoding", "lines_max", "say_lost",
    )  # fmt: skip

    def __init__(self, *, lines_max: int = LINES_MAX, bytes_max: int = BYTES_MAX) -> None:
        """Hold at most so many lines and bytes, but always the newest line; `point_to` says where they go."""
        self.lines_max = lines_max
        self.bytes_max = bytes_max
        self.encoding = "utf-8"
        # Makes the line that tells of so many lost ones.
        self.say_lost: Callable[[int], str] = lambda lost: f"{lost} log lines were lost\n"
        # Puts around lines what has to go to the same place with them: a terminal's status line.
        self.dress: Callable[[bytes], bytes] | None = None
        self._target: io.RawIOBase | None = None
        self.start_anew()

    def start_anew(self) -> None:
        """Forget everything, in the child of a fork: the thread, and the lines that wait for it, are the parent's."""
        # lint: allow PK003 `write` bounds it, in lines and in bytes
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        # Held by the thread that writes; whoever gets it may start one.
        self._owner = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ending = self._given_up = False
        # Moved by those who write, one at a time under their handler's lock.
        self._put_bytes = self._pushed_out = 0
        # Moved by the thread.
        self._taken_bytes = self._unwritten = self._told = 0
        # Half a line was written when the target failed; the next one must not look like its end.
        self._torn = False

    def point_to(self, target: io.RawIOBase, encoding: str = "utf-8") -> None:
        """Write to this file from the next lines on."""
        self._target = target
        self.encoding = encoding

    def goes_to(self, file: io.RawIOBase) -> bool:
        """Tell whether this file, by whatever descriptor, is the one that lines are written to."""
        try:
            return self._target is not None and os.path.sameopenfile(self._target.fileno(), file.fileno())
        except (OSError, ValueError):
            return False

    @property
    def depth(self) -> int:
        """Return how many lines wait."""
        return self._lines.qsize()

    @property
    def waiting_bytes(self) -> int:
        """Return how much they weigh."""
        return self._put_bytes - self._taken_bytes

    @property
    def dropped(self) -> int:
        """Return how many lines were pushed out, or not taken by the file they were for."""
        return self._pushed_out + self._unwritten

    # --- whoever has something to say ------------------------------------------------------------------

    def write(self, text: str) -> None:
        """Take one whole line; the oldest make room for it."""
        line = text.encode(self.encoding, "backslashreplace")
        size = len(line)
        # In one step, with no call inside: the collector may run at a call, and a `__del__` write a line in between.
        self._put_bytes += size
        if self._lines.qsize() >= self.lines_max or self._put_bytes - self._taken_bytes > self.bytes_max:
            self._make_room()
        self._lines.put(line)
        if not self._owner.locked():
            self._start()

    def _make_room(self) -> None:
        while self._lines.qsize() >= self.lines_max or self.waiting_bytes > self.bytes_max:
            try:
                oldest = self._lines.get_nowait()
            except queue.Empty:
                return
            size = len(oldest)
            self._put_bytes -= size
            self._pushed_out += oldest != _WAKE

    def _start(self) -> None:
        if not self._owner.acquire(blocking=False):
            return
        # lint: allow PK007 it waits where nobody else may; there is exactly one, and `close` joins it
        self._thread = threading.Thread(target=self._work, name="log-writer", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            # No thread is to be had: the lines wait, and the next one tries again.
            self._owner.release()

    def close(self, seconds: float = END_S) -> bool:
        """Have everything written and the thread ended within `seconds`; tell whether it was.

        A line that follows is written too, by a thread that ends with it. Whoever did not take our lines in time is
        not waited for a second time: the process wants to end.
        """
        self._ending = True
        if self._lines.qsize() and not self._owner.locked():
            self._start()
        thread = self._thread
        if thread is not None and thread.is_alive():
            self._lines.put(_WAKE)
            thread.join(0.0 if self._given_up else seconds)
        self._given_up = thread is not None and thread.is_alive()
        return not self._given_up and not self._lines.qsize()

    # --- the thread ------------------------------------------------------------------------------------

    def _work(self) -> None:
        line = _WAKE
        while True:
            line = self._write_from(line or self._take())
            if self._ending and not line and self._lines.empty():
                self._owner.release()
                # A line that came just now found a thread at work: it is ours, unless its writer was faster.
                if self._lines.empty() or not self._owner.acquire(blocking=False):
                    return

    def _take(self, *, wait: bool = True) -> bytes:
        line = self._lines.get(block=wait)
        self._taken_bytes += len(line)
        return line

    def _write_from(self, line: bytes) -> bytes:
        """Write a line and those behind it, as far as a pipe takes them whole; return the first that did not fit."""
        batch, total = [line], len(line)
        following = _WAKE
        while not self._lines.empty():
            try:
                following = self._take(wait=False)
            except queue.Empty:
                break  # it was pushed out just now
            total += len(following)
            if total > _BATCH_BYTES:
                break
            batch.append(following)
            following = _WAKE
        self._write_out(b"".join(batch), len(batch) - batch.count(_WAKE))
        return following

    def _write_out(self, data: bytes, count: int) -> None:
        lost = self.dropped - self._told
        if lost:
            data = self.say_lost(lost).encode(self.encoding, "backslashreplace") + data
        if not data:
            return
        if self._torn:
            data = b"\n" + data
        if self._send(data if self.dress is None else self.dress(data)):
            self._told += lost
        else:
            self._unwritten += count

    def _send(self, data: bytes) -> bool:
        """Write all of it, however long that takes; tell whether it was possible."""
        target, sent = self._target, 0
        try:
            while target is not None and sent < len(data):
                written = target.write(memoryview(data)[sent:])
                if written is None:
                    _wait_for_room(target)
                else:
                    sent += written
        except (OSError, ValueError):
            # The reader has left, the disk is full, the file is closed: nobody can be told but by the counter.
            self._torn = self._torn or (sent > 0 and data[sent - 1] != ord("\n"))
            return False
        self._torn = False
        return target is not None


def file_under(stream: TextIO) -> io.FileIO | None:
    """Return the file a stream writes to, which may stand still; none where it only looks like one."""
    binary = getattr(stream, "buffer", None)
    raw = getattr(binary, "raw", binary)
    return raw if isinstance(raw, io.FileIO) else None


def _wait_for_room(target: io.RawIOBase) -> None:
    """Wait for a file that somebody has made non-blocking."""
    poll = select.poll()
    poll.register(target.fileno(), select.POLLOUT)
    poll.poll()


WRITER: Final = LogWriter()
"""The one of this process, which ends with it."""
atexit.register(WRITER.close)
os.register_at_fork(after_in_child=WRITER.start_anew)


def declare_log(inventory: Inventory) -> None:
    """List the queue of log lines, its bounds and its losses among what a process is made of."""
    inventory.queue(
        "log",
        bytes,
        capacity=WRITER.lines_max,
        full=Full.DROP_OLDEST,
        live=lambda: {"depth": WRITER.depth, "dropped": WRITER.dropped},
        producers="everybody",
        consumers="log-writer",
    )
    policy = "more: the oldest lines are dropped, counted"
    inventory.limit("log_bytes", WRITER.bytes_max, policy, lambda: {"in_use": WRITER.waiting_bytes})
    inventory.timeout("log_end", END_S, "the last lines are lost")
    lost = inventory.metrics.watched("log_dropped_total", "Log lines lost because nobody took them in time.")
    lost.append(lambda: WRITER.dropped)
