"""Find a program by `FILE.py::NAME`."""

from __future__ import annotations

import importlib.util
import inspect
import signal
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from penstock.weave.run import Program


class BadProgram(ValueError):
    """There is no such program; the message says what is wrong."""


def load_program(place: str, seconds: float = 60.0) -> Program:
    """Import the file and find the async function; the file's folder can be imported from, as if it were run."""
    path, _, name = place.rpartition("::")
    if not path or not name:
        raise BadProgram(f"{place!r} names no program: write FILE.py::NAME")
    with _in_time(path, seconds):
        module = _import(Path(path))
    program: Program | None = getattr(module, name, None)
    if program is None:
        known = sorted(key for key, value in vars(module).items() if inspect.iscoroutinefunction(value))
        raise BadProgram(f"{path} has no {name}; its async functions: {', '.join(known) or 'none'}")
    if not inspect.iscoroutinefunction(program):
        raise BadProgram(f"{name} in {path} is no async function")
    if any(given.default is given.empty for given in inspect.signature(program).parameters.values()):
        raise BadProgram(f"{name} in {path} wants arguments; a program takes none")
    return program


@contextmanager
def _in_time(path: str, seconds: float) -> Iterator[None]:
    """Bound the import of a file, which may do anything; main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: object) -> None:
        raise BadProgram(f"{path} is still being imported after {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _import(path: Path) -> ModuleType:
    if not path.is_file():
        raise BadProgram(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise BadProgram(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BadProgram:
        raise
    except (Exception, SystemExit) as error:
        raise BadProgram(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module
