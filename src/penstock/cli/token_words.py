"""What a token says and what the node says of it, in lines for people: times as dates, lists without brackets. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from penstock.cli.payloads import printable
from penstock.wire.plain_words import age_text

_NONE = "none"


def claims_in_words(claims: dict[str, Any], now: float) -> dict[str, str]:
    """Return claims with times that people can read, and without what only programs need."""
    said = {"subject": claims["sub"], "tenant": claims["tenant"], "class": claims["class"], "tid": claims["tid"]}
    said["audience"] = _listed(claims["aud"])
    said["caveats"] = _listed(claims.get("caveats") or (), "; ")
    return {**said, "issued": moment(claims["iat"]), "expires": until(claims["exp"], now)}


def verdict_in_words(verdict: dict[str, Any], now: float) -> dict[str, str]:
    """Return what the node says of a token: whether it is good, why not, and what it holds."""
    said = {"ok": _yes(verdict["ok"])}
    said |= {"reason": verdict["reason"]} if verdict.get("reason") else {}
    said |= {"not checked": _listed(verdict["warnings"])} if verdict.get("warnings") else {}
    claims = verdict.get("claims")
    return (
        said if claims is None else {**said, **claims_in_words(claims, now), "rids": _listed(claims.get("rids") or ())}
    )


def inspected_in_words(token: dict[str, Any], now: float) -> dict[str, str]:
    """Return everything that is written in a token; nothing of it was checked."""
    said = {name: printable(str(token[name])) for name in ("kid", "alg", "epoch", "iss")}
    said |= {"audience": _listed(token["aud"]), "subject": printable(token["sub"])}
    said |= {"tenant": printable(token["tenant"]), "class": token["class"]}
    said |= {"issued": moment(token["iat"]), "good from": moment(token["nbf"]), "expires": until(token["exp"], now)}
    said["tid"] = token["tid"]
    for level in token["via"]:
        said["via"] = "; ".join(filter(None, [said.get("via", ""), _level(level)]))
    for number, caveats in enumerate(token["blocks"]):
        said["caveats" if number == 0 else f"narrowed {number}"] = _listed(caveats, "; ")
    said["rids"] = _listed(token["rids"])
    return said | {"sealed": _yes(token["sealed"]), "proven": _yes(token["proven"])}


def moment(unix_s: int) -> str:
    """Write a time of this machine's zone; one that no calendar has stays a number."""
    try:
        return datetime.fromtimestamp(unix_s).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{unix_s} s after 1970"


def until(unix_s: int, now: float) -> str:
    """Write a time, and how far away it is."""
    left_s = unix_s - now
    return f"{moment(unix_s)} ({'in ' + age_text(left_s) if left_s > 0 else age_text(-left_s) + ' ago'})"


def _level(level: dict[str, Any]) -> str:
    whose = f" of {level['sub']}" if level.get("sub") else ""
    return printable(f"{level['tid']}{whose}" + (f", rids {_listed(level['rids'])}" if level["rids"] else ""))


def _listed(words: list[str] | tuple[str, ...], between: str = ", ") -> str:
    return printable(between.join(words)) or _NONE


def _yes(is_so: bool) -> str:  # noqa: FBT001 - a value to be written
    return "true" if is_so else "false"
