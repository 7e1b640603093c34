"""The text of a constructor, from the fields of a class."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class InitSource:
    """The source of one constructor, and the values that it refers to."""

    def __init__(self, *, frozen: bool) -> None:
        self._frozen = frozen
        self._parameters: list[str] = []
        self._keywords: list[str] = []
        self._lines: list[str] = []
        self._values: dict[str, Any] = {"_set": object.__setattr__, "_missing": dataclasses.MISSING}

    def add(self, name: str, default: Any, *, kw_only: bool) -> None:  # noqa: ANN401 - a value, or a Field
        """Take a field's value from a parameter, from its default, or from what makes one."""
        described = isinstance(default, dataclasses.Field)
        makes = described and default.default_factory is not dataclasses.MISSING
        asked = not described or default.init
        own = f"_default_{name}"
        self._values[own] = default if not described else default.default_factory if makes else default.default
        given = self._values[own] is not dataclasses.MISSING
        if asked:
            said = "" if not given else "=_missing" if makes else f"={own}"
            (self._keywords if kw_only else self._parameters).append(name + said)
        value = name if asked else own
        if makes:
            value = f"{own}() if {name} is _missing else {name}" if asked else f"{own}()"
        if asked or given:
            self._lines.append(f"_set(_self, {name!r}, {value})" if self._frozen else f"_self.{name} = {value}")

    def compile(self, *, post_init: bool) -> Callable[..., None]:
        """Make the constructor."""
        lines = [*self._lines, "_self.__post_init__()"] if post_init else self._lines
        star = ["*", *self._keywords] if self._keywords else []
        head = ", ".join(["_self", *self._parameters, *star])
        made: dict[str, Any] = {}
        exec(f"def __init__({head}):\n " + "\n ".join(lines or ["pass"]), self._values, made)  # noqa: S102 - ours
        init: Callable[..., None] = made["__init__"]
        return init
