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
    # The gateway has dialled all upstreams for this answer: one without a problem takes connections now.
    dialled: bool = False

    @property
    def alone(self) -> bool:
        """Tell whether no other upstream of the route is well, so that requests to it fail."""
        return all(each["problem"] if self.dialled else fails(each) for each in self.route["upstreams"])

    @property
    def _takes_connections(self) -> bool:
        return self.dialled and not self.upstream["problem"]

    def said(self) -> str:
        """Say what is wrong: which upstream of which route, why, since when, and what the gateway does about it."""
        shown, since_s = self.upstream, self.upstream["failing_s"]
        why = shown["problem"].rstrip(".")
        what = f"does not answer ({why[0].lower()}{why[1:]})" if why else "fails"
        if self._takes_connections:
            what = "takes connections now, but failed before"
        told = [f"{self.route['prefix']} leads to {shown['url']}, which {what}."]
        if shown["failures"] and since_s is not None:
            last = "try" if shown["failures"] == 1 else f"{shown['failures']} tries"
            told.append(f"The last {last} failed, the first {age_text(since_s)} ago.")
        if shown["state"] != _CLOSED:
            told.append(f"The gateway {'still ' if self._takes_connections else ''}leaves it alone for now.")
        return " ".join(told)

    def hint(self, where: str = "") -> str:
        """Say what to do about it; `where` are the options that lead a command to the node."""
        if self._takes_connections:
            return "The gateway tries it again by itself; if that fails too, look at that service's own log."
        if not self.upstream["problem"] and self.upstream["state"] != _CLOSED:
            return "Look at that service; the next request tries it again."
        change = "in the configuration"
        if self.route["source"] == "live":
            change = f"by penstock route remove {self.route['prefix']}{where}"
        return f"Start the service that should listen there, or take the route away {change}."

    def plain(self) -> dict[str, Any]:
        """Return it for programs."""
        return {"route": self.route["prefix"], **self.upstream}


def failing(routes: list[dict[str, Any]], *, dialled: bool = False) -> list[FailingUpstream]:
    """Return the upstreams that fail, each once; a node of an earlier version tells nothing of them."""
    return [
        FailingUpstream(route, upstream, dialled)
        for route in routes
        for upstream in {each["url"]: each for each in route.get("upstreams", ())}.values()
        if fails(upstream)
    ]


def fails(upstream: dict[str, Any]) -> bool:
    """Tell whether an upstream could not be dialled, is left alone, or failed several times in a row."""
    return bool(upstream["problem"]) or upstream["state"] != _CLOSED or upstream["failures"] >= _FAILURES_MIN
