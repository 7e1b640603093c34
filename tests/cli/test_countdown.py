"""The countdown shares its terminal with the log."""

from __future__ import annotations

import asyncio
import io

from penstock.cli.countdown import Countdown


class Screen(io.StringIO):
    """A terminal behind one writer: whatever goes there is dressed by the countdown."""

    def __init__(self, waiting: dict[str, float]) -> None:
        super().__init__()
        self.countdown = Countdown(self.say, lambda: 10.0, lambda: waiting)

    def say(self, text: str) -> None:
        self.write(self.countdown.around(text.encode()).decode())

    @property
    def lines(self) -> list[str]:
        return [line.rpartition("\r\x1b[K")[2] for line in self.getvalue().split("\n")]


async def test_the_line_is_below_what_is_logged_and_gone_at_the_end() -> None:
    waiting = {"svc-a": 5.0, "svc-b": 20.0}
    screen = Screen(waiting)

    screen.say("before\n")
    screen.countdown.draw()
    screen.say("logged\n")
    del waiting["svc-b"]
    await asyncio.sleep(2.0)
    screen.countdown.end()
    screen.say("after\n")

    assert screen.lines == ["before", "logged", "after", ""]
    assert (
        screen.getvalue().count("draining: svc-a (5 s left), svc-b (10 s left); Ctrl-C again cuts it short\r") == 2
    ), "drawn again below the log's line"
    assert "draining: svc-a (5 s left); Ctrl-C again cuts it short\r" in screen.getvalue()
    assert "draining: svc-a (3 s left); Ctrl-C again cuts it short\r" in screen.getvalue()


async def test_a_log_line_takes_the_place_of_the_countdown_in_one_write() -> None:
    screen = Screen({})
    screen.countdown.draw()
    during = screen.countdown.around(b"from the log's thread\n")
    screen.countdown.end()

    assert during == b"\r\x1b[Kfrom the log's thread\ndraining, 10 s left; Ctrl-C again cuts it short"


async def test_a_log_line_that_was_waiting_when_the_line_ended_is_not_written_behind_it() -> None:
    said: list[str] = []
    countdown = Countdown(said.append, lambda: 10.0, dict)
    countdown.draw()
    drawn = countdown.around(said.pop().encode())
    countdown.end()

    assert drawn.endswith(b"draining, 10 s left; Ctrl-C again cuts it short")
    assert countdown.around(b"logged before the end\n") == b"\r\x1b[Klogged before the end\n"
    assert countdown.around(b"stopped\n") == b"stopped\n"
