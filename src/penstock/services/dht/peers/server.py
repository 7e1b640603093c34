"""Answers what peers ask: PING and FIND from snapshots, at once and in the callback; records go to their keeper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.kernel.errors import Malformed, PenstockError
from penstock.kernel.limiter import TokenBucket
from penstock.services.dht.protocol.envelope import DhtEnvelope, Opcode
from penstock.services.dht.protocol.messages import (
    PONG,
    AnswerCode,
    find_answer,
    provide_answer,
    read_record_value,
    read_target,
    refusal_answer,
)
from penstock.services.dht.state import DhtPhase

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.kernel.channel import Channel
    from penstock.kernel.inventory import Inventory
    from penstock.services.dht.agents.record_keeper import Keeping, RecordKeeper
    from penstock.services.dht.peers.link import PeerLink
    from penstock.services.dht.state import DhtState

_BUSY: Final = refusal_answer(AnswerCode.BUSY, "busy")
_QUOTA: Final = refusal_answer(AnswerCode.QUOTA_EXCEEDED, "quota")
_MALFORMED: Final = refusal_answer(AnswerCode.BAD_VERSION, "malformed")
_DRAINING: Final = refusal_answer(AnswerCode.NOT_READY, DhtPhase.DRAINING.value)
_BOOTSTRAPPING: Final = refusal_answer(AnswerCode.NOT_READY, DhtPhase.BOOTSTRAPPING.value)
_DISABLED: Final = provide_answer(AnswerCode.OK, accepted=False, reason="disabled")


class PeerServer:
    """The limiter and the answers. Costs of one peer's flood fall on that peer's bucket first."""

    def __init__(
        self,
        inventory: Inventory,
        state: DhtState,
        keeper: RecordKeeper,
        records: Channel[Keeping],
        doubt: Callable[[int], None],
    ) -> None:
        options = state.options
        self._state = state
        self._keeper = keeper
        self._records = records
        self._doubt = doubt
        self._inflight = inventory.limiter("rate_limiter", options.inflight)
        self._rps = inventory.bucket("rps", rate=options.rps, depth=max(1, options.rps))
        self._bytes = inventory.bucket("bytes", rate=options.bytes_per_s, depth=max(2 << 20, options.bytes_per_s))
        metrics = inventory.metrics
        self._peer_quota = metrics.counter("quota_reject_total", "Requests a limiter refused.", kind="peer_rps")
        self._served = {
            op: metrics.counter("dht_rpcs_total", "Requests of peers by operation.", op=op.name.lower())
            for op in Opcode
        }
        self._not_ready = {
            phase: metrics.counter(
                "not_ready_total", "Requests refused because the node is not ready.", phase=phase.value
            )
            for phase in (DhtPhase.BOOTSTRAPPING, DhtPhase.DRAINING)
        }
        self._malformed = metrics.counter("dht_malformed_total", "Messages that could not be read.", what="request")

    def serve(self, link: PeerLink, envelope: DhtEnvelope) -> None:
        """Answer one request; whatever is refused costs less than it would cost to serve."""
        refused = self._refusal(link, envelope)
        if refused is not None:
            link.answer(envelope, refused)
            return
        try:
            self._dispatch(link, envelope)
        except Malformed:
            self._malformed.value += 1
            link.answer(envelope, _MALFORMED)
        except PenstockError:
            link.answer(envelope, _BUSY)

    def _refusal(self, link: PeerLink, envelope: DhtEnvelope) -> bytes | None:
        now, options = self._state.monotonic(), self._state.options
        if link.bucket is None:
            link.bucket = TokenBucket("peer_rps", rate=options.peer_rps, depth=2 * options.peer_rps, now=now)
        if not link.bucket.try_take(now):
            self._peer_quota.value += 1
            return _QUOTA
        if not self._rps.try_take(now) or not self._bytes.try_take(now, len(envelope.payload)):
            return _BUSY
        if self._inflight.free <= 0:
            self._inflight.refused += 1
            return _BUSY
        if self._state.phase is DhtPhase.DRAINING:
            self._not_ready[DhtPhase.DRAINING].value += 1
            return _DRAINING
        return None

    def _dispatch(self, link: PeerLink, envelope: DhtEnvelope) -> None:
        opcode = envelope.opcode
        if opcode == Opcode.FIND_NODE:
            link.answer(envelope, self._find(link, read_target(envelope.payload), value=False))
        elif opcode == Opcode.FIND_VALUE:
            link.answer(envelope, self._find(link, read_target(envelope.payload), value=True))
        elif opcode == Opcode.PING:
            link.answer(envelope, PONG)
        elif opcode == Opcode.PROVIDE:
            self._provide(link, envelope)
        elif opcode == Opcode.STORE:
            link.answer(envelope, _DISABLED)
        elif opcode == Opcode.DOWN_HINT:
            self._doubt(read_target(envelope.payload))
        else:
            raise Malformed("There is no such operation.", reason="bad_opcode")
        self._served[Opcode(opcode)].value += 1

    def _find(self, link: PeerLink, target: int, *, value: bool) -> bytes:
        state = self._state
        k = state.options.k
        named = state.table.closest(target, k + 1, state.book.failing)
        contacts = [contact for contact in named if contact.id != link.peer][:k]
        records = self._keeper.book.answer(target, state.wall_ms()) if value else ()
        return find_answer(contacts, records)

    def _provide(self, link: PeerLink, envelope: DhtEnvelope) -> None:
        if self._state.phase is not DhtPhase.READY:
            self._not_ready[DhtPhase.BOOTSTRAPPING].value += 1
            link.answer(envelope, _BOOTSTRAPPING)
            return
        value = read_record_value(envelope.payload)

        def answer(payload: bytes) -> None:
            self._inflight.release()
            link.answer(envelope, payload)

        keeping = self._keeper.keeping(value, link.subnet, answer)
        self._records.try_send(keeping)
        self._inflight.try_acquire_many(1)
