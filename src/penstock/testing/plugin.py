"""The pytest plugin: `async def` tests and fixtures on virtual time, and no test may leave anything behind.

A test marked `real_loop` runs on the real clock under a watchdog: `@pytest.mark.real_loop`,
`real_loop(loop="uvloop")`, `real_loop(loop="asyncio", watchdog_s=5)`.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import pytest

from penstock.kernel.lock import set_debug
from penstock.testing.session import VERDICTS, WATCHDOG_S, Session, close_quietly, new_real_loop, run_with

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterator

_SESSION = pytest.StashKey[Session]()


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, and have every test watch its locks."""
    set_debug(on=True)
    config.addinivalue_line(
        "markers",
        'real_loop(loop="uvloop"|"asyncio", watchdog_s=120): run on the real clock with real sockets, '
        "uvloop when installed",
    )


def _new_session(item: pytest.Item) -> Session:
    marker = item.get_closest_marker("real_loop")
    if marker is None:
        return Session()
    options = dict(marker.kwargs)
    loop = new_real_loop(options.pop("loop", None))
    return Session(loop, watchdog_s=options.pop("watchdog_s", WATCHDOG_S))


def _session_of(item: pytest.Item) -> Session:
    """Find the session of this test, opened by its first async fixture."""
    if _SESSION not in item.stash:
        item.stash[_SESSION] = _new_session(item)
    return item.stash[_SESSION]


# -- fixtures ---------------------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Run an async fixture on the loop of the test that asks for it."""
    func = fixturedef.func
    if not (inspect.iscoroutinefunction(func) or inspect.isasyncgenfunction(func)):
        return (yield)
    if fixturedef.scope != "function":
        pytest.fail(f"async fixture {fixturedef.argname!r} must have function scope: its loop ends with the test")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fixturedef, "func", _on_loop(func, request))
        return (yield)


def _on_loop(func: Callable[..., Any], request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Wrap an async fixture function so that pytest can call it as a plain one."""
    bound = func.__func__.__get__(request.instance) if inspect.ismethod(func) else func
    session = _session_of(request.node)
    if inspect.iscoroutinefunction(func):
        return lambda **values: session.run(bound(**values), name=func.__name__)

    def enter(**values: object) -> object:
        steps = bound(**values)
        value = session.run(_next_of(steps), name=func.__name__)
        request.addfinalizer(partial(_leave, session, steps, func.__name__))
        return value

    return enter


def _leave(session: Session, steps: AsyncIterator[object], name: str) -> None:
    """Resume a yield-style fixture after its test; it must end there."""
    try:
        session.run(_next_of(steps), name=name)
    except StopAsyncIteration:
        return
    pytest.fail(f"async fixture {name!r} yields more than once")


async def _next_of(steps: AsyncIterator[object]) -> object:
    return await anext(steps)


# -- tests ------------------------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test to its end; plain tests are left to pytest."""
    if inspect.iscoroutinefunction(getattr(_examples(pyfuncitem), "inner_test", None)):
        _run_each_example_apart(pyfuncitem)
        return None
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    values = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    make = partial(pyfuncitem.obj, **values)
    if _SESSION in pyfuncitem.stash:
        # Its async fixtures are still open: what it leaves behind shows when they have closed.
        with _told_plainly():
            pyfuncitem.stash[_SESSION].run(make(), name=pyfuncitem.name)
    else:
        _run_alone(pyfuncitem, make)
    return True


def _run_alone(item: pytest.Item, make: Callable[[], Any]) -> None:
    with _told_plainly():
        run_with(make, _new_session(item), item.name)


def _examples(item: pytest.Function) -> Any:  # noqa: ANN401 Hypothesis publishes the attribute, not its type
    """Find what Hypothesis knows of this test, if it is one of its tests."""
    return getattr(item.obj, "hypothesis", None)


def _run_each_example_apart(item: pytest.Function) -> None:
    """Give every example a loop of its own; Hypothesis calls what is left in its place as a plain function."""
    if _SESSION in item.stash:
        pytest.fail("a Hypothesis test cannot use async fixtures: every example has its own loop")
    examples = _examples(item)
    inner = examples.inner_test

    @wraps(inner)
    def run_example(*args: object, **values: object) -> None:
        run_with(partial(inner, *args, **values), _new_session(item), item.name)

    # iscoroutinefunction follows no __wrapped__, so the next run of this item sees a plain function.
    examples.inner_test = run_example


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Close the session that async fixtures opened, after they have ended."""
    try:
        result = yield
    except BaseException as error:
        if _SESSION in item.stash:
            close_quietly(item.stash[_SESSION], error)
        raise
    if _SESSION in item.stash:
        with _told_plainly():
            item.stash[_SESSION].close()
    return result


@contextmanager
def _told_plainly() -> Iterator[None]:
    """Report the kit's own verdicts by their message alone."""
    try:
        yield
    except VERDICTS as error:
        verdict = error
    else:
        return
    pytest.fail("\n".join([str(verdict), *getattr(verdict, "__notes__", ())]), pytrace=False)
