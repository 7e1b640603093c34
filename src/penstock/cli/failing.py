"""Words for a failure: the node's own, or others where the options of a command tell more. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from penstock.sdk.reach_hints import reach_hint

# How an attempt fails where nobody listens.
_NOBODY: Final = ("connection refused", "the host name", "no route")
_OUT_OF_REACH: Final = "out of reach: "
_ENDED_EARLY: Final = "The connection ended before"
_NO_ROUTE: Final = "There is no such route."
_UNREADABLE: Final = "carries no readable problem"
# How a hint begins that is for whoever writes requests by hand.
_FOR_PROGRAMS: Final = "/openapi.json"
_GIVE_ONE: Final = (
    "Give --token-file FILE, or set PENSTOCK_TOKEN_FILE (penstock token issue makes a token); "
    "with --data-dir the operator's own is used."
)


class FailureWords(NamedTuple):
    """What went wrong, and what to do about it."""

    said: str
    hint: str = ""


def words(told: FailureWords, *, reason: str = "", url: str | None = None) -> FailureWords:
    """Return better words where there are any; `url` is the node's, where it is known by one."""
    if reason == "missing":
        return FailureWords(told.said, _GIVE_ONE)
    if told.hint.startswith(_FOR_PROGRAMS):
        told = FailureWords(told.said)
    if url is None:
        return told
    if _OUT_OF_REACH in told.said:
        why = told.said.partition(_OUT_OF_REACH)[2].rstrip(".")
        return FailureWords(nothing_answers(url, why), told.hint or reach_hint(why))
    if told.said.startswith(_ENDED_EARLY):
        return FailureWords(f"{url} cannot be reached: the connection ended before an answer.", reach_hint(told.said))
    if told.said == _NO_ROUTE:
        return FailureWords(
            f"{url} is not the URL of a gateway: there is no such path below it.",
            "Give the host and the port of the node's gateway, as https://HOST:5306.",
        )
    if _UNREADABLE in told.said:
        return FailureWords(not_a_node(url), "Give the host and the port of its gateway, as https://HOST:5306.")
    return told


def no_node(directory: Path | None) -> str:
    """Say in which directory no node was found, and how to name another one."""
    where = "here" if directory is None else f"in {directory.absolute()}"
    return (
        f"no node is running {where}: start one with penstock up, or name another by --data-dir "
        "or --url (PENSTOCK_DATA_DIR, PENSTOCK_URL)."
    )


def nothing_answers(url: str, why: str) -> str:
    """Say that nobody listens at a URL, or that whoever does cannot be spoken to."""
    if why.lower().startswith(_NOBODY):
        return f"nothing answers at {url} ({why[0].lower()}{why[1:]})."
    return f"{url} cannot be reached: {why}."


def not_a_node(url: str) -> str:
    """Say that somebody else listens at a URL."""
    return f"what answers at {url} is not a penstock node."


def operator_only(subject: str) -> FailureWords:
    """Say that a token of somebody else was used where only the operator's will do."""
    hint = "Give the operator's by --token-file; on the node's machine it is operator.token in the data directory."
    return FailureWords(f"only the operator's token will do, and the one in use is {subject}'s.", hint)
