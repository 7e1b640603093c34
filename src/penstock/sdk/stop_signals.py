"""SIGTERM and SIGINT while a consumer runs: the first one stops it, and it finishes what it holds.

After the first signal both have the handlers again that they had before: so a second Ctrl-C interrupts, and a second
SIGTERM ends the program.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stopping_on_signals(stop: Callable[[], object], *, wanted: bool) -> Iterator[None]:
    """Call `stop` on the first signal inside the block, if that is wanted. Only the main thread can have signals."""
    if not wanted:
        yield
        return
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("stop_on_signals works in the main thread only: elsewhere, call consumer.stop()")
    before: dict[signal.Signals, Any] = {each: signal.getsignal(each) for each in _SIGNALS}

    def restore() -> None:
        for each, handler in before.items():
            signal.signal(each, signal.SIG_DFL if handler is None else handler)

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        restore()
        stop()

    try:
        for each in _SIGNALS:
            signal.signal(each, on_signal)
        yield
    finally:
        restore()
