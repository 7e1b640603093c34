"""What a program promises beside its assertions: `always`, `sometimes`, `eventually`, outside events, and its view.

Each of these is called by the program while it runs. On another loop than weave's they do what is possible there, so
the same program also runs by `asyncio.run`: `always` looks once, `event` happens soon, the others do nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.weave.loop import Step, WeaveLoop

if TYPE_CHECKING:
    from collections.abc import Mapping

Condition = Callable[[], object]


class Broken(AssertionError):
    """A promise does not hold in this schedule."""


class Promises:
    """The promises of one run; `reached` is shared by all runs of an exploration."""

    def __init__(self, loop: WeaveLoop, reached: dict[str, bool]) -> None:
        self.loop = loop
        self.reached = reached
        self.due: dict[str, Condition] = {}
        """What `eventually` still waits for; part of the state of the program."""
        self.view: Callable[[], Mapping[str, object]] | None = None
        self.on_view: Callable[[Mapping[str, object]], None] | None = None
        self._always: list[tuple[str, Condition]] = []
        self._sometimes: dict[str, Condition] = {}

    def always(self, check: Condition, name: str) -> None:
        """Check after every step from now on."""
        self._always.append((name, check))
        self._watch()
        self.look()

    def sometimes(self, name: str, condition: object) -> None:
        """Note whether any schedule gets there."""
        if not callable(condition):
            self.reached[name] = self.reached.get(name, False) or bool(condition)
            return
        self.reached.setdefault(name, False)
        self._sometimes[name] = condition
        self._watch()

    def eventually(self, name: str, condition: Condition) -> None:
        """Demand that this comes true before the schedule ends."""
        self.due[name] = condition
        self._watch()
        self.look()

    def show(self, view: Callable[[], Mapping[str, object]]) -> None:
        """Take what the program shows of itself after each step."""
        self.view = view
        self._watch()
        self.look()

    def look(self, _: Step | None = None) -> None:
        """Look at everything promised."""
        for name, check in self._always:
            if check() is False:
                raise Broken(f"always: {name} does not hold")
        if self._sometimes:
            for name in [name for name, condition in self._sometimes.items() if condition()]:
                self.reached[name] = True
                del self._sometimes[name]
        if self.due:
            for name in [name for name, condition in self.due.items() if condition()]:
                del self.due[name]
        if self.view is not None and self.on_view is not None:
            self.on_view(self.view())

    def _watch(self) -> None:
        if self.look not in self.loop.after:
            self.loop.after.append(self.look)


def _promises() -> Promises | None:
    loop = asyncio.get_running_loop()
    promises: Promises | None = getattr(loop, "promises", None)
    return promises


def always(check: Condition, name: str = "") -> None:
    """Demand that `check()` neither raises nor returns False, now and after every step from now on."""
    told = name or getattr(check, "__qualname__", repr(check))
    if (promises := _promises()) is not None:
        promises.always(check, told)
    elif check() is False:
        raise Broken(f"always: {told} does not hold")


def sometimes(name: str, condition: object) -> None:
    """Demand that some schedule makes this true; a callable is looked at after every step, a value once."""
    if (promises := _promises()) is not None:
        promises.sometimes(name, condition)


def eventually(name: str, condition: Condition) -> None:
    """Demand that every schedule makes this true, once, before it ends."""
    if (promises := _promises()) is not None:
        promises.eventually(name, condition)


def view(show: Callable[[], Mapping[str, object]]) -> None:
    """Show the program's state in the words of its specification; see `penstock.weave.refine`."""
    if (promises := _promises()) is not None:
        promises.show(show)


def shown() -> None:
    """Look at the view now, in the middle of a step: what one step of the code does may be two in the specification."""
    if (promises := _promises()) is not None:
        promises.look()


@contextmanager
def still() -> Iterator[None]:
    """Set the world up without choices: steps run in asyncio's order, outside events happen when all is idle."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, WeaveLoop):
        yield
        return
    loop.still = True
    try:
        yield
    finally:
        loop.still = False


def event(callback: Callable[..., object], *args: object) -> asyncio.Handle:
    """Let something happen outside: the callback is called once, at any moment from now on."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, WeaveLoop):
        return loop.add_event(callback, *args)
    return loop.call_soon(callback, *args)
