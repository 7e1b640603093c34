"""Upstreams of the gateway's routes that fail: which route, which upstream, since when, and what to do. Pure."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from penstock.wire.plain_words import age_text

# One request in the way of a restart is nothing to tell of.
_FAILURES_MIN: Final = 3
_CLOSED: Final = "closed"


class FailingUpstream(NamedTuple):
    """One upstream of one route, as the admin listener describes them."""

    route: dict[str, Any]
    upstream: dict[str, Any]

    @property
    def alone(self) -> bool:
        """Tell whether no other upstream of the route is well, so that requests to it fail."""
        return all(fails(each) for each in self.route["upstreams"])

    def said(self) -> str:
        """Say what is wrong: which upstream of which route, why, since when, and what the gateway does about it."""
        shown, since_s = self.upstream, self.upstream["failing_s"]
        why = shown["problem"].rstrip(".")
        what = f"does not answer ({why[0].lower()}{why[1:]})" if why else "fails"
        told = [f"{self.route['prefix']} leads to {shown['url']}, which {what}."]
        if shown["failures"] and since_s is not None:
            last = "call" if shown["failures"] == 1 else f"{shown['failures']} calls"
            told.append(f"The last {last} failed, the first {age_text(since_s)} ago.")
        if shown["state"] != _CLOSED:
            told.append("The gateway leaves it alone for now.")
        return " ".join(told)

    def hint(self, where: str = "") -> str:
        """Say what to do about it; `where` are the options that lead a command to the node."""
        if not self.upstream["problem"] and self.upstream["state"] != _CLOSED:
            return "Look at that service; the next request tries it again."
        change = "in the configuration"
        if self.route["source"] == "live":
            change = f"by penstock route remove {self.route['prefix']}{where}"
        return f"Start the service that should listen there, or take the route away {change}."

    def plain(self) -> dict[str, Any]:
        """Return it for programs."""
        return {"route": self.route["prefix"], **self.upstream}


def failing(routes: list[dict[str, Any]]) -> list[FailingUpstream]:
    """Return the upstreams that fail; a node of an earlier version tells nothing of them."""
    return [
        FailingUpstream(route, upstream)
        for route in routes
        for upstream in route.get("upstreams", ())
        if fails(upstream)
    ]


def fails(upstream: dict[str, Any]) -> bool:
    """Tell whether an upstream could not be dialled, is left alone, or failed several times in a row."""
    return bool(upstream["problem"]) or upstream["state"] != _CLOSED or upstream["failures"] >= _FAILURES_MIN
