"""What was issued, read from the audit: the issuer keeps no token, only that it has issued one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.capability.token import IssuingLevel, TokenRoot
from penstock.contracts import passport as p
from penstock.kernel.errors import Malformed
from penstock.services.passport.core import OPERATOR
from penstock.wire.audit_chain import ChainRecord, read_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.capability.floors import Floors
    from penstock.services.passport.store import PassportStore

# So much of the audit at most is read for one page.
PART_BYTES: Final = 262_144
_ISSUE: Final = b'"action":"issue"'


def lineage_facts(root: TokenRoot) -> dict[str, Any]:
    """Say what a new token descends from, where the names of its issuer alone do not tell.

    Whatever the operator issues with the token as it is needs no more than those.
    """
    (*_, issuer) = root.via
    if len(root.via) == 1 and issuer.sub == OPERATOR and len(issuer.ids) == 1:
        return {}
    return {"via": [[[one.hex() for one in level.ids], level.sub, level.owner, level.kid] for level in root.via]}


@dataclass(frozen=True, slots=True)
class IssuedQuery:
    """What is asked, and what a token is judged by."""

    asked: p.ListIssued
    floors: Floors
    # Until when each key verifies, by its kid: a rotation ends the old one after a grace.
    keys: Mapping[str, int]
    now_s: float
    # The tenant that the caller is bound to: others' tokens are not shown.
    tenant: str | None

    def state(self, record: ChainRecord) -> p.TokenState:
        """Judge a token that was issued, as a verifier would."""
        facts = record.facts
        if any(map(self.floors.hits_level, _levels(facts))):
            return "revoked"
        return "good" if facts["kid"] in self.keys and self.ends(facts) > self.now_s else "expired"

    def ends(self, facts: dict[str, Any]) -> int:
        """Return when a token ends: by itself, or with the key that signed it."""
        return int(min(facts["exp"], self.keys.get(facts["kid"], facts["exp"])))


def _levels(facts: dict[str, Any]) -> Iterator[IssuingLevel]:
    """Name the token and all it descends from.

    All with the token's own epoch. An ancestor's is older, but a floor between the two would have kept the ancestor
    from issuing.
    """
    epoch = facts["epoch"]
    own = (bytes.fromhex(facts["tid"]), bytes.fromhex(facts.get("rid", "")))
    yield IssuingLevel(own, facts["sub"], facts["tenant"], facts["kid"], epoch)
    by_sub = facts.get("by_sub", "")
    by = [[facts["by"]], by_sub, f"sub:{by_sub}", facts["kid"]]
    for ids, sub, owner, kid in facts.get("via", (by,)):
        yield IssuingLevel(tuple(map(bytes.fromhex, ids)), sub, owner, kid, epoch)


def issued_page(store: PassportStore, query: IssuedQuery) -> p.IssuedList:
    """Read one page from the end of the audit, or from before a cursor. Called off the loop: it reads the disk."""
    part = store.audit_part(_place(query.asked.cursor), PART_BYTES)
    lines = part.data.splitlines(keepends=True)
    place = part.start + len(part.data)
    found: list[p.IssuedToken] = []
    for line in reversed(lines):
        if len(found) == query.asked.limit:
            break
        place -= len(line)
        if _ISSUE in line:
            found += _shown(read_record(line, 0), query)
    return p.IssuedList(tuple(found), str(place) if place > part.first else None)


def _shown(record: ChainRecord, query: IssuedQuery) -> list[p.IssuedToken]:
    facts = record.facts
    if record.action != "issue" or (query.tenant is not None and facts["tenant"] != query.tenant):
        return []
    state = query.state(record)
    if state != "good" and not query.asked.all:
        return []
    token = p.IssuedToken(
        tid=facts["tid"],
        sub=facts["sub"],
        tenant=facts["tenant"],
        class_=facts.get("traffic_class", "authed"),
        aud=tuple(facts["aud"]),
        caveats=tuple(facts["caveats"]),
        iat=record.at_ms // 1000,
        exp=query.ends(facts),
        kid=facts["kid"],
        epoch=facts["epoch"],
        by=facts.get("by_sub", ""),
        state=state,
    )
    return [token]


def _place(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= 16):
        raise Malformed("This is not a cursor of ours.", reason="bad_cursor")
    return int(cursor)
