"""Handlers: which ones a consumer can run. A plain function under asyncio, or an async one under threads, is refused.

Whether a call returns something to await is known for sure only when it was made: a lambda and a wrapper look plain and
may return a coroutine. So what is surely wrong is refused before any message is taken, and the rest by the first
result. The message of that call is given back, and the attempt is not counted: it is not the message's fault.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

_WANTS_ASYNC = "the handler must be an async function: write `async def`, or use penstock.client.sync"
_WANTS_PLAIN = "the handler must be a plain function: the blocking client cannot await; use connect and asyncio"


class WrongHandler(TypeError):
    """The handler is of the wrong kind for its consumer: a bug of the program, and none of the message."""


def check_async_handler(handler: Callable[..., Any]) -> None:
    """Refuse what can never be awaited."""
    call = _called(handler)
    plain = inspect.isfunction(call) and _returns_nothing(call) and not inspect.iscoroutinefunction(call)
    if plain or inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
        raise WrongHandler(_WANTS_ASYNC)


def check_plain_handler(handler: Callable[..., Any]) -> None:
    """Refuse what would do nothing when it is called: it has to be awaited, or iterated."""
    call = _called(handler)
    if inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call) or inspect.isgeneratorfunction(call):
        raise WrongHandler(_WANTS_PLAIN)


def awaited(outcome: object) -> Awaitable[object]:
    """Return what an async handler's call returned, if it can be awaited."""
    if inspect.isawaitable(outcome):
        return outcome
    raise WrongHandler(_WANTS_ASYNC)


def check_outcome(outcome: object) -> None:
    """Refuse a result that would have to be awaited: the work was not done."""
    if inspect.isawaitable(outcome):
        if inspect.iscoroutine(outcome):
            outcome.close()
        raise WrongHandler(_WANTS_PLAIN)


def _called(handler: Callable[..., Any]) -> Any:  # noqa: ANN401 - a function of any kind
    """Return the function that a call of the handler runs."""
    if not callable(handler):
        raise WrongHandler(f"the handler must be a function, not {type(handler).__name__}")
    while isinstance(handler, partial):
        handler = handler.func
    if inspect.isfunction(handler) or inspect.isbuiltin(handler) or isinstance(handler, type):
        return handler
    # A method, or an object that is called.
    return getattr(handler, "__func__", None) or getattr(type(handler).__call__, "__wrapped__", type(handler).__call__)


def _returns_nothing(call: Any) -> bool:  # noqa: ANN401 - a function of any kind
    return call.__annotations__.get("return", ...) in {None, "None"}
