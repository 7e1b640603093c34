"""The pytest mark: `@pytest.mark.weave(mode="any", strategy="auto")` explores every schedule of an `async def` test.

The keywords of the mark are those of `weave.explore`. A failure prints the failing schedule and its token;
`pytest --schedule=TOKEN` runs that schedule alone, with output and debugger as usual.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

import pytest

from penstock.weave.explore import explore, replay

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.weave.report import WeaveReport


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the schedule to replay."""
    parser.getgroup("penstock").addoption(
        "--schedule", metavar="TOKEN", help="run weave tests with this schedule alone"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark."""
    config.addinivalue_line(
        "markers", 'weave(mode="any", strategy="auto", seconds=60, ...): explore every schedule of an async test'
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the exploration in the place of each marked test."""
    for item in items:
        marker = item.get_closest_marker("weave")
        if marker is None or not isinstance(item, pytest.Function):
            continue
        if not inspect.iscoroutinefunction(item.obj):
            raise pytest.UsageError(f"{item.nodeid}: @pytest.mark.weave belongs on an async test")
        item.obj = _explored(item.obj, dict(marker.kwargs), config.getoption("--schedule"))


def _explored(test: Callable[..., Any], options: dict[str, Any], schedule: str | None) -> Callable[..., None]:
    """Make the plain function that pytest calls instead; it takes the same fixtures."""

    @functools.wraps(test)
    def run(*args: object, **values: object) -> None:
        program = functools.partial(test, *args, **values)
        report = replay(program, schedule, **options) if schedule else explore(program, **options)
        _judge(report, replayed=bool(schedule))

    return run


def _judge(report: WeaveReport, *, replayed: bool) -> None:
    if report.verdict == "fails" or (report.verdict == "cut" and not replayed):
        again = f"\npytest --schedule={report.token} runs this schedule again" if report.token else ""
        pytest.fail(f"{report}{again}", pytrace=False)
