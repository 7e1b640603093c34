"""Calls to the mailbox on behalf of an access key, and the platform's refusals in the protocol's words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.contracts.mailbox_prompt import OffersPrompt
from penstock.kernel.errors import (
    Busy,
    Conflict,
    Forbidden,
    Internal,
    Malformed,
    NotFound,
    NotReady,
    OverLimit,
    PenstockError,
    PolicyBlocked,
    RateLimited,
    Unsupported,
)
from penstock.kernel.memo import Memo
from penstock.services.interop.authority import Purpose
from penstock.services.interop.sqs.refusals import SqsRefusal, invalid

if TYPE_CHECKING:
    from penstock.contracts.call import Call
    from penstock.contracts.mailbox import Mailbox
    from penstock.services.interop.authority import BridgeAuthority
    from penstock.services.interop.sqs.face.access_keys import AccessKey

_PURPOSES_MAX: Final = 4096
AUDIENCE: Final = "svc-mailbox"
# What a registry does for itself, and what moves messages that nobody asks for by then.
SUBJECT: Final = "sqs:registry"


class SqsBacking:
    """The mailbox, and passports to use it with: one for each key, op and topic, each good for a minute."""

    def __init__(self, mailbox: Mailbox | None, authority: BridgeAuthority) -> None:
        """Take the contract and the bridge's own authority."""
        self._mailbox = mailbox
        # The side of a mailbox in this process that makes nobody wait; None where it is another process.
        found: object = mailbox
        self.prompt = found.prompt if isinstance(found, OffersPrompt) else None
        self._authority = authority
        # What keys were found to be allowed, with the key: one that was changed or made anew is looked at again.
        self._purposes: Memo[tuple[str, str, str], tuple[AccessKey, Purpose]] = Memo(_PURPOSES_MAX)

    @property
    def mailbox(self) -> Mailbox:
        """Return the mailbox; NotReady where none runs."""
        if self._mailbox is None:
            raise NotReady("svc-mailbox does not run here.", phase="absent", service="svc-mailbox")
        return self._mailbox

    async def call(self, key: AccessKey, op: str, topic: str, corr_id: str) -> Call:
        """Return the bearings of a call that this key may make; refuse any other."""
        return await self._authority.call(self._purpose(key, op, topic), corr_id)

    def ready_call(self, key: AccessKey, op: str, topic: str, corr_id: str) -> Call | None:
        """Return the bearings of a call, if nothing has to be waited for; refuse what this key may not do."""
        return self._authority.ready_call(self._purpose(key, op, topic), corr_id)

    async def own_call(self, op: str, topic: str) -> Call:
        """Return the bearings of a call that the face makes for itself."""
        return await self._authority.call(Purpose(SUBJECT, AUDIENCE, op, topic), "")

    def _purpose(self, key: AccessKey, op: str, topic: str) -> Purpose:
        known = self._purposes.get((key.id, op, topic))
        if known is not None and known[0] is key:
            return known[1]
        if not key.allows(op, topic):
            raise denied(key.id, op, topic)
        purpose = Purpose(f"sqs:{key.id}", AUDIENCE, op, topic, key.tenant)
        self._purposes.put((key.id, op, topic), (key, purpose))
        return purpose


def denied(key_id: str, op: str, topic: str) -> SqsRefusal:
    """Refuse what a key does not cover."""
    return SqsRefusal("AccessDeniedException", f"The access key {key_id} may not {op} on {topic}.")


_THROTTLED: Final = (Busy, RateLimited)
_TOO_LARGE: Final = "One or more parameters are invalid. Reason: The request is larger than this service takes."


def refusal_of(error: PenstockError) -> SqsRefusal:
    """Say a refusal of the platform in the protocol's words; what is nobody's fault is to be tried again."""
    if isinstance(error, _THROTTLED):
        return SqsRefusal("RequestThrottled", f"Rate exceeded: {error.detail}")
    if isinstance(error, Forbidden | PolicyBlocked):
        return SqsRefusal("AccessDeniedException", error.detail)
    if isinstance(error, OverLimit):
        return invalid(_TOO_LARGE)
    if isinstance(error, NotFound) or error.status == 421:
        return SqsRefusal("InvalidAddress", error.detail)
    if isinstance(error, Unsupported):
        return SqsRefusal("InvalidAction", error.detail)
    if isinstance(error, Malformed | Conflict):
        return invalid(error.detail)
    if isinstance(error, Internal):
        return SqsRefusal("InternalFailure", "The request failed for an unknown reason; try it again.")
    return SqsRefusal("ServiceUnavailable", error.detail or "The service is not ready; try again.")
