"""The countdown shares its terminal with the log."""

from __future__ import annotations

import asyncio
import io
import threading

from penstock.cli.countdown import Above, Countdown


class Screen(io.StringIO):
    """A terminal that two streams write to."""

    def say(self, text: str) -> None:
        self.write(text)


async def test_the_line_is_below_what_is_logged_and_gone_at_the_end() -> None:
    screen, waiting = Screen(), ["svc-a", "svc-b"]
    countdown = Countdown(screen.say, lambda: 10.0, lambda: waiting)
    log = Above(countdown, screen)
    log.write("before\n")
    countdown.draw()
    waiting.remove("svc-b")
    log.write("logged\n")
    await asyncio.sleep(2.0)
    countdown.end()
    log.write("after\n")

    shown = [line.rpartition("\r\x1b[K")[2] for line in screen.getvalue().split("\n")]
    assert shown == ["before", "logged", "after", ""]
    assert "draining, 10 s left: svc-a, svc-b\r" in screen.getvalue()
    assert "draining, 10 s left: svc-a\r" in screen.getvalue()
    assert "draining, 8 s left: svc-a\r" in screen.getvalue()


async def test_a_thread_may_log_while_it_counts() -> None:
    screen = Screen()
    countdown = Countdown(screen.say, lambda: 10.0, list)
    countdown.draw()
    writer = threading.Thread(target=Above(countdown, screen).write, args=("from a thread\n",))
    writer.start()
    writer.join()
    countdown.end()

    assert screen.getvalue() == "\r\x1b[Kdraining, 10 s left\r\x1b[Kfrom a thread\n\r\x1b[K"
