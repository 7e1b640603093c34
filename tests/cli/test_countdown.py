"""The countdown shares its terminal with the log."""

from __future__ import annotations

import asyncio
import io

from penstock.cli.countdown import Countdown


async def test_the_line_is_below_what_is_logged_and_gone_at_the_end() -> None:
    screen, waiting = io.StringIO(), ["svc-a", "svc-b"]
    countdown = Countdown(screen.write, lambda: 10.0, lambda: waiting)

    def log(line: bytes) -> None:
        screen.write(countdown.around(line).decode())

    log(b"before\n")
    countdown.draw()
    log(b"logged\n")
    waiting.remove("svc-b")
    await asyncio.sleep(2.0)
    countdown.end()
    log(b"after\n")

    shown = [line.rpartition("\r\x1b[K")[2] for line in screen.getvalue().split("\n")]
    assert shown == ["before", "logged", "after", ""]
    assert screen.getvalue().count("draining, 10 s left: svc-a, svc-b\r") == 2, "drawn again below the log's line"
    assert "draining, 10 s left: svc-a\r" in screen.getvalue()
    assert "draining, 8 s left: svc-a\r" in screen.getvalue()


async def test_a_log_line_takes_the_place_of_the_countdown_in_one_write() -> None:
    countdown = Countdown(io.StringIO().write, lambda: 10.0, list)
    before = countdown.around(b"quiet\n")
    countdown.draw()
    during = countdown.around(b"from the log's thread\n")
    countdown.end()

    assert before == b"quiet\n"
    assert during == b"\r\x1b[Kfrom the log's thread\n\r\x1b[Kdraining, 10 s left"
