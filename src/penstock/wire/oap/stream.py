"""The stream rules of OAP/1 as a state machine for one connection: frames in, decisions out. Pure.

REQ|START opens a stream, REQ|END completes the request, RESP .. RESP|END answers it. A breach costs its stream
(status 400), never the connection; only a peer that keeps feeding streams it was refused is cut off.
"""

from __future__ import annotations

from typing import Final, Protocol, TypeAlias

import msgspec

from penstock.kernel.errors import Busy, Malformed, OverLimit, PenstockError
from penstock.wire.oap.frame import (
    COMP,
    CONTROL,
    END,
    EVENT,
    KINDS,
    REQ,
    RESP,
    START,
    Frame,
    inflate,
)
from penstock.wire.oap.hello import MAX_INFLIGHT

REQUEST_BYTES_MAX: Final = 1 << 20
ANSWER_BYTES_MAX: Final = 8 << 20
ERROR_STATUS: Final = 400


class Budget(Protocol):
    """Bytes shared by a whole process; `kernel.limiter.ByteBudget` is one."""

    def try_take(self, n: int, /) -> bool:
        """Take n bytes now, or take nothing and say so."""

    def give(self, n: int, /) -> None:
        """Return n bytes."""


class OapRequest(msgspec.Struct, frozen=True, gc=False):
    """A request is complete and wants an answer under its corr_id."""

    corr_id: int
    app_proto_id: int
    code: int
    tenant_id: int
    capability: bytes
    payload: bytes


class OapAnswer(msgspec.Struct, frozen=True, gc=False):
    """A request of ours has its whole answer."""

    corr_id: int
    code: int
    payload: bytes


class OapControl(msgspec.Struct, frozen=True, gc=False):
    """A control frame (such as HELLO) or an EVENT: complete in one frame, without a stream."""

    frame: Frame


class OapRefusal(msgspec.Struct, frozen=True):
    """The stream is closed with this error.

    `answer` says whether the peer is told: always for a REQ, for an unasked RESP only when that was no error itself
    (two ends would otherwise refuse each other's refusals for ever), never for an EVENT.
    """

    corr_id: int
    error: PenstockError
    answer: bool


Decision: TypeAlias = OapRequest | OapAnswer | OapControl | OapRefusal | None


class _Assembly:
    """One half of a stream as it arrives: the first frame's names and the payload so far."""

    __slots__ = ("complete", "first", "held_bytes", "parts", "started")

    def __init__(self, first: Frame | None = None) -> None:
        self.first = first
        self.parts: list[bytes] = []
        self.held_bytes = 0
        self.complete = False
        self.started = False

    def joined(self) -> bytes:
        parts = self.parts
        return parts[0] if len(parts) == 1 else b"".join(parts)


class StreamTable:
    """Every open stream of one connection, in both directions."""

    __slots__ = (
        "_answer_bytes_max",
        "_budget",
        "_discard",
        "_inbound",
        "_outbound",
        "_request_bytes_max",
        "max_inflight",
    )

    def __init__(
        self,
        *,
        max_inflight: int = MAX_INFLIGHT,
        request_bytes_max: int = REQUEST_BYTES_MAX,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        budget: Budget | None = None,
    ) -> None:
        """Start with no stream open; `budget` is charged for what requests hold until they are settled."""
        self.max_inflight = max_inflight
        self._request_bytes_max = request_bytes_max
        self._answer_bytes_max = answer_bytes_max
        self._budget = budget
        self._inbound: dict[int, _Assembly] = {}
        self._outbound: dict[int, _Assembly] = {}
        # Streams closed before their END arrived: what is still under way for them is dropped unread.
        self._discard: set[int] = set()

    @property
    def inbound(self) -> int:
        """Requests of the peer that have no answer yet, complete or not."""
        return len(self._inbound)

    @property
    def unfinished(self) -> int:
        """Requests and answers whose END the peer still owes us, once they have begun."""
        return sum(not half.complete for half in self._inbound.values()) + sum(
            half.started for half in self._outbound.values()
        )

    @property
    def outbound(self) -> int:
        """Requests of ours that have no answer yet."""
        return len(self._outbound)

    def receive(self, frame: Frame) -> Decision:
        """Take one frame; say what it completes or why its stream is closed, or None while more is to come.

        Raises Busy when the peer floods streams that were refused: the connection has to go.
        """
        kind = frame.flags & KINDS
        if frame.capability and not frame.flags & START:
            return self._breach(frame, "A capability travels only with START.", "cap_without_start")
        if kind == REQ:
            return OapControl(frame) if frame.app_proto_id == CONTROL else self._request(frame)
        if kind == RESP:
            return self._response(frame)
        if kind == EVENT:
            return OapControl(frame)
        return self._breach(frame, "A frame is exactly one of REQ, RESP and EVENT.", "bad_kind")

    def open(self, corr_id: int) -> None:
        """Note a request of ours; raises Busy when the peer's window is full."""
        if corr_id in self._outbound:
            raise ValueError(f"stream {corr_id} is already open")
        if len(self._outbound) >= self.max_inflight:
            raise Busy("The peer's window is full.", queue="oap_window")
        self._outbound[corr_id] = _Assembly()

    def abandon(self, corr_id: int) -> None:
        """Give up on an answer of ours; it is dropped when it comes, and holds its place in the window till then."""
        if (assembly := self._outbound.get(corr_id)) is not None:
            assembly.complete = True
            assembly.parts.clear()

    def settle(self, corr_id: int) -> bool:
        """Close a stream of the peer because its answer is on the way; False when it was closed before."""
        assembly = self._inbound.get(corr_id)
        if assembly is None:
            return False
        self._drop(corr_id, assembly, ended=assembly.complete)
        return True

    def clear(self) -> None:
        """Forget everything and return what is held: the connection is gone."""
        for corr_id, assembly in list(self._inbound.items()):
            self._drop(corr_id, assembly, ended=True)
        self._outbound.clear()
        self._discard.clear()

    def _request(self, frame: Frame) -> Decision:
        assembly = self._inbound.get(frame.corr_id)
        if frame.flags & START:
            if assembly is not None or frame.corr_id in self._discard:
                return self._breach(frame, "The stream is already open.", "second_start")
            if len(self._inbound) >= self.max_inflight:
                return self._refuse(frame, Busy("Too many requests are open on this connection.", queue="oap_window"))
            assembly = self._inbound[frame.corr_id] = _Assembly(frame)
        elif assembly is None:
            return self._stray(frame)
        elif assembly.complete or not _same_names(assembly.first, frame):
            return self._breach(frame, "The frame does not continue its request.", "bad_continuation")
        return self._grow(assembly, frame)

    def _grow(self, assembly: _Assembly, frame: Frame) -> Decision:
        if (error := self._append(assembly, frame, self._request_bytes_max, self._budget)) is not None:
            return self._refuse(frame, error)
        if not frame.flags & END:
            return None
        assembly.complete = True
        first = assembly.first or frame
        payload = assembly.joined()
        assembly.parts.clear()
        return OapRequest(frame.corr_id, first.app_proto_id, first.code, first.tenant_id, first.capability, payload)

    def _response(self, frame: Frame) -> Decision:
        assembly = self._outbound.get(frame.corr_id)
        if assembly is None:
            return self._breach(frame, "An answer came to no request.", "resp_before_req")
        if frame.flags & START and assembly.started:
            return self._breach(frame, "The answer has already begun.", "second_start")
        assembly.started = True
        final = frame.flags & END or frame.app_proto_id == CONTROL
        if assembly.complete:
            if final:
                del self._outbound[frame.corr_id]
            return None
        if (error := self._append(assembly, frame, self._answer_bytes_max, None)) is not None:
            assembly.complete = True
            return OapRefusal(frame.corr_id, error, answer=False)
        if not final:
            return None
        del self._outbound[frame.corr_id]
        return OapAnswer(frame.corr_id, frame.code, assembly.joined())

    def _append(self, assembly: _Assembly, frame: Frame, bytes_max: int, budget: Budget | None) -> PenstockError | None:
        """Add the frame's payload within every limit; return the error instead of raising it."""
        try:
            room = bytes_max - assembly.held_bytes
            payload = inflate(frame.payload, bytes_max=room) if frame.flags & COMP else frame.payload
        except PenstockError as exc:
            return exc
        if len(payload) > room:
            return OverLimit(f"The payload is above {bytes_max} bytes.", limit="payload_bytes")
        if budget is not None and not budget.try_take(len(payload)):
            return Busy("The node holds as many bytes as it may.", limit="node_bytes", queue="node_bytes")
        assembly.held_bytes += len(payload)
        assembly.parts.append(payload)
        return None

    def _stray(self, frame: Frame) -> Decision:
        """Judge a REQ frame without START whose stream is not open."""
        if frame.corr_id in self._discard:
            if frame.flags & END:
                self._discard.remove(frame.corr_id)
            return None
        return self._breach(frame, "The stream was never started.", "no_start")

    def _breach(self, frame: Frame, detail: str, reason: str) -> OapRefusal:
        return self._refuse(frame, Malformed(detail, reason=reason))

    def _refuse(self, frame: Frame, error: PenstockError) -> OapRefusal:
        """Close the frame's stream; remember it only while more of it may be under way."""
        kind = frame.flags & KINDS
        if kind != REQ:
            return OapRefusal(frame.corr_id, error, answer=kind == RESP and frame.code < ERROR_STATUS)
        ended = bool(frame.flags & END)
        if (assembly := self._inbound.get(frame.corr_id)) is not None:
            self._drop(frame.corr_id, assembly, ended=ended or assembly.complete)
        else:
            self._mark(frame.corr_id, ended=ended)
        return OapRefusal(frame.corr_id, error, answer=True)

    def _drop(self, corr_id: int, assembly: _Assembly, *, ended: bool) -> None:
        del self._inbound[corr_id]
        if self._budget is not None:
            self._budget.give(assembly.held_bytes)
        self._mark(corr_id, ended=ended)

    def _mark(self, corr_id: int, *, ended: bool) -> None:
        if ended:
            self._discard.discard(corr_id)
            return
        self._discard.add(corr_id)
        if len(self._discard) > self.max_inflight:
            raise Busy("The peer keeps feeding streams that were refused.", queue="oap_window")


def _same_names(first: Frame | None, frame: Frame) -> bool:
    return first is not None and first.app_proto_id == frame.app_proto_id and first.code == frame.code
