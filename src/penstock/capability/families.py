"""The closed set of caveats: what each is called, which type its values have, and what it is judged on."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

AUDIENCES: Final = ("omnigate", "svc-mailbox", "svc-passport", "svc-storage", "svc-dht", "svc-interop", "*")
OPS: Final = ("send", "recv", "ack", "nack", "admin", "put", "get", "provide", "find", "issue", "revoke", "*")
# A configured route of the gateway as an audience, `route:/prefix`. No penstock service is one, so a token that was
# narrowed to a route is good for nothing else. It belongs to the gateway: whoever may call the gateway may call it.
ROUTE_AUDIENCE: Final = "route:"
GATEWAY: Final = "omnigate"
CLASSES: Final = ("anon", "authed", "internal")

# What only the operator hands out. An issuer cannot make issuers.
GRANTED_OPS: Final = frozenset({"issue", "revoke"})
# What a token may do only when an op caveat of its root names it, or is `*`. `admin` empties and reads dead letters.
NAMED_OPS: Final = GRANTED_OPS | {"admin"}
# What goes on while the revocation feed is lost: taking and settling, never making.
READ_OPS: Final = frozenset({"recv", "ack", "nack", "get", "find"})


class CaveatKind(enum.Enum):
    """What the values of a family are, and so how they are matched and compared."""

    SET = "set"  # one of these words
    PREFIX = "prefix"  # itself, or what follows after a separator
    NETWORK = "network"  # an address inside one of these
    AT_MOST = "at_most"  # a number: less is narrower
    AT_LEAST = "at_least"  # a number: more is narrower
    FLAG = "flag"  # true or false
    OPAQUE = "opaque"  # known by name, with no evaluator in this build: refused at issue and at verify


@dataclass(frozen=True, slots=True, eq=False)
class CaveatFamily:
    """One kind of caveat, one object each; `code` is its number in the token and never changes its meaning."""

    name: str
    code: int
    kind: CaveatKind
    # The attribute of the request it is judged on; empty for times, counters and what only the root decides.
    attribute: str = ""
    words: tuple[str, ...] = ()


_ALL: Final = (
    CaveatFamily("aud", 1, CaveatKind.SET, "aud", AUDIENCES),
    # The service that does the work: whoever verifies names itself.
    CaveatFamily("svc", 2, CaveatKind.SET, "aud", AUDIENCES),
    CaveatFamily("route", 3, CaveatKind.PREFIX, "route"),
    CaveatFamily("method", 4, CaveatKind.SET, "method"),
    CaveatFamily("op", 5, CaveatKind.SET, "op", OPS),
    CaveatFamily("topic", 6, CaveatKind.PREFIX, "topic"),
    CaveatFamily("region", 7, CaveatKind.SET, "region"),
    # These two only restrict: they must hold the root's own value, and are never read to choose anything.
    CaveatFamily("tenant", 8, CaveatKind.SET),
    CaveatFamily("ip", 9, CaveatKind.NETWORK, "ip"),
    CaveatFamily("exp", 10, CaveatKind.AT_MOST),
    CaveatFamily("nbf", 11, CaveatKind.AT_LEAST),
    CaveatFamily("scope", 12, CaveatKind.SET, "", CLASSES),
    CaveatFamily("budget.bytes", 13, CaveatKind.AT_MOST),
    CaveatFamily("budget.reqs", 14, CaveatKind.AT_MOST),
    CaveatFamily("rate.rps", 15, CaveatKind.AT_MOST),
    CaveatFamily("amnesia", 16, CaveatKind.FLAG),
    CaveatFamily("proof.bind", 17, CaveatKind.OPAQUE),
    CaveatFamily("pq.fallback", 18, CaveatKind.FLAG),
)
FAMILIES: Final = {family.name: family for family in _ALL}
BY_CODE: Final = {family.code: family for family in _ALL}

SCOPED_CODE: Final = 19
"""Stands before a service and a family's number in a caveat that counts at that service only."""
SCOPED: Final = frozenset({"op", "topic", "route", "method"})
"""What may be scoped to a service."""
SCOPES: Final = tuple(name for name in AUDIENCES if name != "*")

COUNTED: Final = ("budget.bytes", "budget.reqs", "rate.rps")
BUDGETS: Final = ("budget.bytes", "budget.reqs")
# A star stands for every word of these.
STARRED: Final = ("aud", "svc", "op")
