"""The closed set of caveats: what each is called, which type its values have, and what it is judged on."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

AUDIENCES: Final = ("omnigate", "svc-mailbox", "svc-passport", "svc-storage", "svc-dht", "svc-interop", "*")
OPS: Final = ("send", "recv", "ack", "nack", "admin", "put", "get", "provide", "find", "issue", "revoke", "*")
CLASSES: Final = ("anon", "authed", "internal")

# What a token may do only when its issuer wrote it into the root: silence in the root does not grant these.
GRANTED_OPS: Final = frozenset({"issue", "revoke"})
# What goes on while the revocation feed is lost: taking and settling, never making.
READ_OPS: Final = frozenset({"recv", "ack", "nack", "get", "find"})


class Kind(enum.Enum):
    """What the values of a family are, and so how they are matched and compared."""

    SET = "set"  # one of these words
    PREFIX = "prefix"  # itself, or what follows after a separator
    NETWORK = "network"  # an address inside one of these
    AT_MOST = "at_most"  # a number: less is narrower
    AT_LEAST = "at_least"  # a number: more is narrower
    FLAG = "flag"  # true or false
    OPAQUE = "opaque"  # known by name, with no evaluator in this build: refused at issue and at verify


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """One kind of caveat, one object each; `code` is its number in the token and never changes its meaning."""

    name: str
    code: int
    kind: Kind
    # The attribute of the request it is judged on; empty for times, counters and what only the root decides.
    attribute: str = ""
    words: tuple[str, ...] = ()


_ALL: Final = (
    Family("aud", 1, Kind.SET, "aud", AUDIENCES),
    # The service that does the work: whoever verifies names itself.
    Family("svc", 2, Kind.SET, "aud", AUDIENCES),
    Family("route", 3, Kind.PREFIX, "route"),
    Family("method", 4, Kind.SET, "method"),
    Family("op", 5, Kind.SET, "op", OPS),
    Family("topic", 6, Kind.PREFIX, "topic"),
    Family("region", 7, Kind.SET, "region"),
    # These two only restrict: they must hold the root's own value, and are never read to choose anything.
    Family("tenant", 8, Kind.SET),
    Family("ip", 9, Kind.NETWORK, "ip"),
    Family("exp", 10, Kind.AT_MOST),
    Family("nbf", 11, Kind.AT_LEAST),
    Family("scope", 12, Kind.SET, "", CLASSES),
    Family("budget.bytes", 13, Kind.AT_MOST),
    Family("budget.reqs", 14, Kind.AT_MOST),
    Family("rate.rps", 15, Kind.AT_MOST),
    Family("amnesia", 16, Kind.FLAG),
    Family("proof.bind", 17, Kind.OPAQUE),
    Family("pq.fallback", 18, Kind.FLAG),
)
FAMILIES: Final = {family.name: family for family in _ALL}
BY_CODE: Final = {family.code: family for family in _ALL}

COUNTED: Final = ("budget.bytes", "budget.reqs", "rate.rps")
BUDGETS: Final = ("budget.bytes", "budget.reqs")
# A star stands for every word of these.
STARRED: Final = ("aud", "svc", "op")
