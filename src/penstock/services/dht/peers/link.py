"""One connection to a peer, dialled or accepted: frames in and out, and requests that wait for their answers.

There is no task here: bytes come in by callback, one step decides, bytes go out. Until the HELLO has proved the peer
only HELLO messages are taken. A request stays pending until it is answered, its time is over or the connection ends;
each ends with exactly one call of its `done`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, cast

from penstock.kernel.errors import Malformed
from penstock.services.dht.core.link_spread import LinkRegion
from penstock.services.dht.core.lookup import ProbeFailure
from penstock.services.dht.protocol.envelope import (
    REQ,
    RESP,
    VERSION,
    DhtEnvelope,
    Opcode,
    decode_envelope,
    encode_envelope,
)
from penstock.services.dht.protocol.frames import FrameOversized, FrameSplitter
from penstock.services.dht.protocol.messages import AnswerCode, DhtAnswer, read_answer, refusal_answer

if TYPE_CHECKING:
    from penstock.kernel.limiter import TokenBucket
    from penstock.services.dht.core.contact import Contact

FRAMES_A_TURN: Final = 64
PENDING_MAX: Final = 64
MALFORMED_MAX: Final = 16
WRITE_BYTES: Final = 1 << 20
# An answer to what had no readable corr_id; no request ever has this one.
NOBODYS_CORR_ID: Final = (1 << 64) - 1

PeerReply = DhtAnswer | ProbeFailure
Done = Callable[[PeerReply], None]


class LinkOwner(Protocol):
    """Whoever a link belongs to."""

    group_private: bool

    def serve(self, link: PeerLink, envelope: DhtEnvelope) -> None:
        """Answer a request."""
        ...

    def lost(self, link: PeerLink) -> None:
        """Hear that the link is gone."""
        ...

    def malformed(self, what: str) -> None:
        """Count something that could not be read."""
        ...

    def seconds(self) -> int:
        """Return the wall clock, for the envelope."""
        ...


class _Pending:
    __slots__ = ("asked_at", "done", "due_at")

    def __init__(self, done: Done, asked_at: float, due_at: float) -> None:
        self.done = done
        self.asked_at = asked_at
        self.due_at = due_at


class PeerLink(asyncio.Protocol):
    """Owned by its transport from `connection_made` to `connection_lost`, by the pool once it is proven."""

    def __init__(self, owner: LinkOwner, *, dialled: bool) -> None:
        self.dialled = dialled
        self.peer = 0  # the proven id; 0 before
        self.dialler = 0  # who dialled, for the choice between two links of the same pair
        self.region = LinkRegion(0, 0)  # where its peer is; set when the pool takes the link
        self.host = ""
        self.subnet: str | None = None
        self.contact: Contact | None = None  # where the peer was dialled; None for one that came to us
        self.listen: list[Contact] = []  # where the peer says that it can be dialled
        self.bucket: TokenBucket | None = None
        self.made_at = self.used_at = self.heard_at = 0.0
        self.stuck_since: float | None = None
        self.owed_since: float | None = None
        self.silent = False  # a swarm's black hole: takes everything in and says nothing
        self.left = False  # the peer closed it
        self.hinted_at = 0.0
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._splitter = FrameSplitter()
        # Bounded by one read: reading stops while frames are left over.
        self._inbox: deque[bytes] = deque()
        self._turn: asyncio.Handle | None = None
        self._pending: dict[int, _Pending] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._corr_id = 0
        self._faults = 0
        self._hello: bytes | None = None
        self._early: list[DhtEnvelope] = []  # what came before the proof was verified; bounded
        self._hello_waiter: asyncio.Future[None] | None = None

    # --- state ----------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Tell whether something may still be sent."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def pending(self) -> int:
        """Return how many requests wait for an answer."""
        return len(self._pending)

    @property
    def waiting_s(self) -> float:
        """Return for how long the oldest request has waited for its answer; 0 when none waits."""
        if not self._pending:
            return 0.0
        return self._loop.time() - next(iter(self._pending.values())).asked_at

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close when what was written has gone out."""
        if self._transport is not None:
            self._transport.close()

    def retire(self, after_s: float) -> None:
        """Close when the requests under way have had their time: another link serves the peer from now on."""
        # lint: allow PK006 closing a closed link changes nothing, so the timer needs no cancel
        self._loop.call_later(after_s, self.close)

    # --- the transport's calls --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BYTES)
        name = transport.get_extra_info("peername")
        self.host = name[0] if isinstance(name, tuple) else ""
        self.made_at = self.used_at = self.heard_at = self._loop.time()
        if self.silent and self._transport is not None:
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """End: every request under way failed."""
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        if self._turn is not None:
            self._turn.cancel()
        if self._hello_waiter is not None and not self._hello_waiter.done():
            self._hello_waiter.set_result(None)
        self._owner.lost(self)
        pending, self._pending = self._pending, {}
        for each in pending.values():
            each.done(ProbeFailure.CUT)

    def eof_received(self) -> None:
        """Note that the peer closes; the transport closes this end too."""
        self.left = True

    def data_received(self, data: bytes) -> None:
        """Take bytes in."""
        if self.silent:
            return
        self.heard_at = self._loop.time()
        before = self._splitter.oversized
        try:
            frames = self._splitter.feed(data)
        except FrameOversized:
            self._owner.malformed("oversized")
            self.abort()
            return
        for _ in range(self._splitter.oversized - before):
            self._owner.malformed("oversized")
            self.send(Opcode.PING, NOBODYS_CORR_ID, RESP, refusal_answer(AnswerCode.FRAME_TOO_LARGE, "frame_too_large"))
        self._inbox.extend(frames)
        self._work()

    def _work(self) -> None:
        self._turn = None
        inbox = self._inbox
        for _ in range(min(FRAMES_A_TURN, len(inbox))):
            self._take(inbox.popleft())
        if inbox and self.is_open:
            assert self._transport is not None
            self._transport.pause_reading()
            # lint: allow PK006 cancelled when the connection is lost
            self._turn = self._loop.call_soon(self._work)
            return
        if (
            self._transport is not None
            and not self._transport.is_reading()
            and not self.silent
            and self.stuck_since is None
        ):
            self._transport.resume_reading()
        self.owed_since = (self.owed_since or self.heard_at) if self._splitter.pending else None

    def pause_writing(self) -> None:
        """Stop taking requests from a peer that does not read our answers."""
        self.stuck_since = self._loop.time()
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on."""
        self.stuck_since = None
        if self._transport is not None and not self._inbox:
            self._transport.resume_reading()

    # --- messages in ------------------------------------------------------------------------------------------

    def _take(self, body: bytes) -> None:
        try:
            envelope = decode_envelope(body)
        except Malformed:
            self._fault("frame")
            return
        if envelope.opcode == Opcode.HELLO:
            self._take_hello(envelope)
        elif not self.peer and self.dialled and len(self._early) < FRAMES_A_TURN:
            # The listener has verified us and may ask at once, while its own proof is still on the verify thread.
            self._early.append(envelope)
        elif not self.peer:
            # Nobody is served before the proof.
            self._owner.malformed("unproven")
            self.abort()
        else:
            self._take_proven(envelope)

    def proven(self, peer: int, dialler: int) -> None:
        """Know the peer from here on, and take what it sent since it knew us."""
        self.peer, self.dialler = peer, dialler
        early, self._early = self._early, []
        for envelope in early:
            self._take_proven(envelope)

    def _take_proven(self, envelope: DhtEnvelope) -> None:
        if envelope.flags & RESP:
            self._take_answer(envelope)
        elif envelope.version != VERSION:
            self.answer(envelope, refusal_answer(AnswerCode.BAD_VERSION, "version"))
        else:
            self._owner.serve(self, envelope)

    def _fault(self, what: str) -> None:
        """Count a message that could not be read; a peer that sends nothing else is cut off."""
        self._owner.malformed(what)
        self._faults += 1
        if self._faults >= MALFORMED_MAX:
            self.abort()

    def _take_hello(self, envelope: DhtEnvelope) -> None:
        if self.peer or self._hello is not None:
            self._fault("hello")
            return
        self._hello = envelope.payload
        if self._hello_waiter is not None and not self._hello_waiter.done():
            self._hello_waiter.set_result(None)

    async def next_hello(self) -> bytes:
        """Wait for the peer's next HELLO; the caller bounds the wait."""
        if self._hello is None and self.is_open:
            self._hello_waiter = self._loop.create_future()
            await self._hello_waiter
            self._hello_waiter = None
        hello, self._hello = self._hello, None
        if hello is None:
            raise Malformed("The peer left before it proved itself.", reason="no_hello")
        return hello

    def _take_answer(self, envelope: DhtEnvelope) -> None:
        pending = self._pending.pop(envelope.corr_id, None)
        if pending is None:
            return
        try:
            answer = read_answer(envelope.payload, group_private=self._owner.group_private)
        except Malformed:
            self._fault("answer")
            pending.done(ProbeFailure.USELESS)
            return
        pending.done(answer)

    # --- messages out -----------------------------------------------------------------------------------------

    def send(self, opcode: int, corr_id: int, flags: int, payload: bytes) -> None:
        """Write a message, if there is still somebody to write to."""
        if self._transport is not None and not self.silent:
            self._transport.write(encode_envelope(opcode, corr_id, flags, payload, self._owner.seconds()))

    def answer(self, envelope: DhtEnvelope, payload: bytes) -> None:
        """Answer a request."""
        self.send(envelope.opcode, envelope.corr_id, RESP, payload)

    def request(self, opcode: int, payload: bytes, done: Done, timeout_s: float) -> None:
        """Ask; `done` is called once, never inside this call unless there is no room for another request."""
        if not self.is_open or len(self._pending) >= PENDING_MAX:
            done(ProbeFailure.REFUSED if self.is_open else ProbeFailure.CUT)
            return
        self._corr_id += 1
        now = self.used_at = self._loop.time()
        self._pending[self._corr_id] = _Pending(done, now, now + timeout_s)
        self.send(opcode, self._corr_id, REQ, payload)
        if self._timer is None:
            self._arm(now + timeout_s)

    def _arm(self, when: float) -> None:
        # lint: allow PK006 cancelled when the connection is lost
        self._timer = self._loop.call_at(when, self._expire)

    def _expire(self) -> None:
        """Fail the requests whose time is over; all have the same timeout, so the oldest come first."""
        self._timer = None
        now = self._loop.time() + 1e-4
        for corr_id in [corr_id for corr_id, each in self._pending.items() if each.due_at <= now]:
            self._pending.pop(corr_id).done(ProbeFailure.TIMEOUT)
        if self._pending and self._timer is None:
            self._arm(min(each.due_at for each in self._pending.values()))
