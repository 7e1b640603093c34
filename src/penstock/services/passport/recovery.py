"""What a start compares before it believes a state: the audit's revocations, the keys, and where the files lie. Pure.

A state that has lost a revocation brings revoked tokens back to life. So a start refuses to go on when the audit tells
of a revocation that the state does not have, when keys are there and the state is not, and when records that were
there are gone. A whole data directory that was put back from a copy agrees with itself; it is told by the place of its
lock file, which a copy cannot keep, and then everything that was issued before is revoked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from penstock.capability.floors import name_digest, within
from penstock.contracts import passport as p
from penstock.kernel.errors import Integrity
from penstock.services.passport.state import IssuerState

DAY_MS: Final = 24 * 3600 * 1000
# The highest `issuer_policy.max_ttl` there can be: a token may have been issued before the setting was lowered.
TTL_S_EVER: Final = 24 * 3600
SHORT_MS: Final = (TTL_S_EVER + 60) * 1000
LONG_MS: Final = 366 * DAY_MS
# A record is written a moment after the state it tells of, and the state may drop an entry that moment earlier.
_SLACK_MS: Final = 120_000
_NAMED: Final = frozenset({"tenant", "subject_ref"})
_LONG: Final = frozenset({"kid", "epoch", "rid"})


class NotedRevocation(msgspec.Struct, frozen=True):
    """A revocation as the audit tells of it."""

    at_ms: int
    kind: p.RevocationKind
    value: str
    epoch: int
    # The tenant of the revoker, where it was bound to one.
    within: str = ""

    @property
    def values(self) -> frozenset[str]:
        """Return how the state may write it: by its digest, or by its name as older states do."""
        value = name_digest(self.value) if self.kind in _NAMED else self.value
        if self.within and self.kind != "tenant":
            return frozenset({within(value, name_digest(self.within))})
        return frozenset({value, self.value})

    @property
    def until_ms(self) -> int:
        """Return until when the state has to hold it."""
        return self.at_ms + (LONG_MS if self.kind in _LONG else SHORT_MS) - _SLACK_MS


def check_floors(state: IssuerState, noted: Iterable[NotedRevocation], now_ms: int) -> None:
    """Raise `Integrity` for the first revocation of the audit that this state has lost."""
    floors = {(kept.entry.kind, kept.entry.value): kept.entry.floor for kept in state.kept}
    for each in noted:
        if each.until_ms <= now_ms:
            continue
        if each.kind == "epoch":
            held = state.issuer >= int(each.value)
        else:
            held = any(floors.get((each.kind, value), -1) >= each.epoch for value in each.values)
        if not held:
            raise Integrity(
                f"The state has lost the revocation of {each.kind} {each.value}, which the audit tells of. "
                "Put back a state that has it, or a copy of the whole data directory.",
                reason="lost_revocation",
            )


def with_all_revoked(state: IssuerState, now_ms: int) -> IssuerState:
    """Return a state in which nothing that was issued before is good any more."""
    epoch = state.current + 1
    return state.with_revocation(
        p.Revocation(state.seq + 1, "epoch", str(epoch), epoch, now_ms), now_ms + LONG_MS, now_ms
    )
