"""What an operator should know at once, and the verdict in a sentence that it makes. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from penstock.admin.readings import Readings
    from penstock.net.server.route import Route

_LEVELS: Final = {"fatal": "bad", "not ready": "bad", "aborting": "bad", "ready": "good"}
_CONCERNS_MAX: Final = 6


@dataclass(frozen=True, slots=True)
class Concern:
    """One thing that is not as it should be: a few words, a sentence, and the view of the page that shows it."""

    level: Literal["warn", "bad"]
    words: str
    detail: str
    view: str


def _no_concerns() -> Sequence[Concern]:
    return ()


def _no_facts() -> Mapping[str, object]:
    return {}


@dataclass(frozen=True, kw_only=True, slots=True)
class PagePart:
    """What a service adds to the operator's page beside its panels."""

    # Its figures, once a second, for the history.
    readings: Readings | None = None
    # What each frame of the page says of it; must not wait.
    facts: Callable[[], Mapping[str, object]] = field(default=_no_facts)
    concerns: Callable[[], Sequence[Concern]] = field(default=_no_concerns)
    # What has to be asked for and waited for; done every few seconds.
    refresh: Callable[[], Awaitable[None]] | None = None
    # Routes on the admin listener, for what the page asks for now and then.
    routes: Sequence[Route] = ()


def summed_up(state: str, why: str, concerns: Sequence[Concern]) -> dict[str, object]:
    """Return the verdict: a level, a title of a few words, a sentence, and what it is made of, the worst first."""
    ordered = sorted(concerns, key=lambda each: each.level != "bad")
    levels = {_LEVELS.get(state, "warn"), *(each.level for each in ordered)}
    level = next(each for each in ("bad", "warn", "good") if each in levels)
    told = [why] if why else []
    told += [each.detail for each in ordered if each.detail]
    return {
        "state": state,
        "level": level,
        "title": _title(state, ordered),
        "why": " ".join(_sentence(each) for each in told),
        "concerns": [{"level": each.level, "words": each.words, "view": each.view} for each in ordered[:_CONCERNS_MAX]],
    }


def _title(state: str, concerns: Sequence[Concern]) -> str:
    word = "Working" if state == "ready" else state[0].upper() + state[1:]
    if not concerns:
        return "Working, nothing to do" if state == "ready" else word
    words = [each.words for each in concerns[:3]]
    listed = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
    return f"{word}, with {listed}"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else text + "."
