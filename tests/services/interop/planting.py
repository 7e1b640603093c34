"""Plant one bug in a copy of a package, to see that a test finds it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType


@contextmanager
def planted(source: ModuleType, folder: Path, module: str, old: str, new: str) -> Iterator[str]:
    """Give the name of a copy of the package in which `old` is `new` in one module."""
    folder.mkdir()
    package = folder.name
    for path in Path(str(source.__file__)).parent.glob("*.py"):
        text = path.read_text()
        if path.stem == module:
            assert old in text, f"{module} has no {old!r} any more"
            text = text.replace(old, new)
        (folder / path.name).write_text(text.replace(source.__name__, package))
    sys.path.insert(0, str(folder.parent))
    try:
        yield package
    finally:
        sys.path.remove(str(folder.parent))
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            del sys.modules[name]


def sight(check: Callable[[], str]) -> str:
    """Return what a check says about a copy; a copy that raises is seen too."""
    try:
        return check()
    except Exception as exc:  # noqa: BLE001 - whatever a planted bug raises
        return repr(exc)
