"""How a node ended, for programs and in words: what was cut off by the drain, and why. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from penstock.wire.plain_words import age_text

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAMED_MAX: Final = 8


def plain_ending(cut: Sequence[str], cause: str, limit_s: float) -> dict[str, Any]:
    """Return it for programs: `reason` is why something was cut off, and null where nothing was."""
    return {"clean": not cut, "cut": list(cut), "reason": cause if cut else None, "limit_s": limit_s}


def read_ending(told: dict[str, Any]) -> dict[str, Any]:
    """Return the members of an ending that was written to a file; one that is damaged raises TypeError or KeyError."""
    ending = {"clean": told["clean"], "cut": told["cut"], "reason": told["reason"], "limit_s": told["limit_s"]}
    kinds = {"clean": bool, "cut": list, "reason": str | None, "limit_s": int | float}
    wrong = [name for name, kind in kinds.items() if not isinstance(ending[name], kind)]
    if wrong or not all(isinstance(name, str) for name in ending["cut"]):
        raise TypeError(f"{', '.join(wrong) or 'cut'} is of another kind")
    return ending


def ending_in_words(told: dict[str, Any]) -> str:
    """Say what was cut off, and why."""
    counts = Counter(told["cut"])
    named = [name if many == 1 else f"{name} ({many} times)" for name, many in counts.items()]
    more = f" and {len(named) - _NAMED_MAX} more" if len(named) > _NAMED_MAX else ""
    why = f"was not done within the drain deadline ({age_text(told['limit_s'])} for the whole node, less for a service)"
    if told["reason"] == "signal":
        why = "was not done when a second signal cut the drain short"
    return f"cut off, because it {why}: {', '.join(named[:_NAMED_MAX])}{more}"
