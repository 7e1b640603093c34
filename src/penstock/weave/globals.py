"""Find module and class state that outlives a run: it makes runs depend on each other."""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.weave.fingerprint import Fingerprints

_OURS = ("penstock.weave", "penstock.testing")


class GlobalState:
    """The values of the globals and class attributes of some modules at one moment."""

    def __init__(self, modules: Iterable[str], prints: Fingerprints) -> None:
        """Fingerprint each of them; what cannot be seen into is left out."""
        self.values = {
            name: mark for name, value in _globals_of(modules) if (mark := prints.of_value(value)) is not None
        }

    def changed_since(self, before: GlobalState) -> list[str]:
        """Name what has another value now."""
        return sorted(name for name, mark in self.values.items() if before.values.get(name, mark) != mark)


def _globals_of(modules: Iterable[str]) -> Iterator[tuple[str, object]]:
    for name in sorted(modules):
        module = sys.modules.get(name)
        if module is None or name.partition(".")[0] in sys.stdlib_module_names or name.startswith(_OURS):
            continue
        for key, value in list(vars(module).items()):
            if key.startswith("__") or isinstance(value, (types.ModuleType, types.FunctionType)):
                continue
            if isinstance(value, type):
                yield from _class_state(name, value)
            else:
                yield f"{name}.{key}", value


def _class_state(module: str, kind: type) -> Iterator[tuple[str, object]]:
    if kind.__module__ != module:
        return
    for key, value in list(vars(kind).items()):
        if not key.startswith("__") and not callable(value) and not hasattr(value, "__get__"):
            yield f"{module}.{kind.__qualname__}.{key}", value


def value_named(name: str) -> object:
    """Read a global or class attribute by its full name, or nothing when it is gone."""
    module, _, rest = name.rpartition(".")
    while module and module not in sys.modules:
        module, _, part = module.rpartition(".")
        rest = f"{part}.{rest}"
    value: object = sys.modules.get(module)
    for part in rest.split("."):
        value = getattr(value, part, None)
    return value
