"""The one writer of the records kept for others: quotas, then the signature, then the book."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.kernel.deadline import timeout
from penstock.kernel.errors import Closed, PenstockError, Timeout
from penstock.services.dht.core.record import ProviderRecord
from penstock.services.dht.core.record_book import BookLimits, KeepVerdict, RecordBook
from penstock.services.dht.protocol.messages import AnswerCode, provide_answer

if TYPE_CHECKING:
    from penstock.kernel.channel import Channel
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory
    from penstock.services.dht.agents.record_verifier import RecordVerifier
    from penstock.services.dht.events import DhtEvents
    from penstock.services.dht.state import DhtState

EXPIRE_S: Final = 30.0
_ACCEPTED: Final = provide_answer(AnswerCode.OK, accepted=True)
_BAD: Final = provide_answer(AnswerCode.BAD_SIGNATURE, accepted=False, reason="bad_record")
_STALE: Final = provide_answer(AnswerCode.STALE_RECORD, accepted=False, reason="stale")
_BUSY: Final = provide_answer(AnswerCode.BUSY, accepted=False, reason="busy")


@dataclass(frozen=True, slots=True)
class Keeping:
    """A record on its way in, and whom to tell what became of it."""

    record: ProviderRecord | None
    subnet: str | None
    answer: Callable[[bytes], None]


class RecordKeeper:
    """Owns the book; everybody else only reads it."""

    def __init__(
        self,
        inventory: Inventory,
        state: DhtState,
        verifier: RecordVerifier,
        events: DhtEvents,
        records: Channel[Keeping],
    ) -> None:
        """Start with an empty book: records of others are never on disk."""
        self.book = RecordBook(BookLimits(records_max=state.options.kept_max))
        self._state = state
        self._verifier = verifier
        self._events = events
        self._records = records
        inventory.metrics.gauge(
            "provider_records_total", "Records kept for others.", read=lambda: len(self.book), state="kept"
        )

    def keeping(self, value: object, subnet: str | None, answer: Callable[[bytes], None]) -> Keeping:
        """Make the job of a record that a peer delivered; one that cannot be read is refused in its turn."""
        return Keeping(self._verifier.read(value), subnet, answer)

    async def run(self, child: Child) -> None:
        """Take records until the queue is closed and empty; every half minute remove what has expired.

        The half minute does not begin anew with each record: where they never stop coming, the book would fill up with
        expired ones.
        """
        expire_at = self._state.monotonic() + EXPIRE_S
        while True:
            now = self._state.monotonic()
            if now >= expire_at:
                self._expire()
                expire_at = now + EXPIRE_S
            try:
                async with timeout("expire", expire_at - now):
                    keeping = await self._records.recv()
            except Timeout:
                continue
            except Closed:
                return
            await self._take(keeping)

    def _expire(self) -> None:
        for record in self.book.expire(self._state.wall_ms()):
            self._events.say("record.expired", key_id=record.key)

    async def _take(self, keeping: Keeping) -> None:
        answer = _BUSY
        try:
            answer = await self._judge(keeping)
        except PenstockError:
            # The verify pool is full or late: the peer may come again.
            answer = _BUSY
        finally:
            keeping.answer(answer)

    async def _judge(self, keeping: Keeping) -> bytes:
        record = keeping.record
        if record is None:
            return _BAD
        verdict = self.book.refusal(record, keeping.subnet)
        if verdict is None:
            if not await self._verifier.holds(record):
                return _BAD
            verdict = self.book.store(record, keeping.subnet)
        return self._answer(record, verdict)

    def _answer(self, record: ProviderRecord, verdict: KeepVerdict) -> bytes:
        if verdict is KeepVerdict.STORED:
            self._events.say("record.stored", key_id=record.key)
        if verdict.accepted:
            return _ACCEPTED
        if verdict is KeepVerdict.STALE:
            self._verifier.refused["stale"].value += 1
            return _STALE
        self._verifier.refused["quota"].value += 1
        return provide_answer(AnswerCode.QUOTA_EXCEEDED, accepted=False, reason=verdict.value)
