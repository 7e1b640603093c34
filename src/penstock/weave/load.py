"""Find a program by `FILE.py::NAME`."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from penstock.weave.run import Program


class BadProgram(ValueError):
    """There is no such program; the message says what is wrong."""


def load_program(place: str) -> Program:
    """Import the file and find the async function; the file's folder can be imported from, as if it were run."""
    path, _, name = place.rpartition("::")
    if not path or not name:
        raise BadProgram(f"{place!r} names no program: write FILE.py::NAME")
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
    except Exception as error:
        raise BadProgram(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module
