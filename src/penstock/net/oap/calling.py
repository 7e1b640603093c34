"""One dialled OAP/1 connection: calls out, answers matched by corr_id, events in."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final

import msgspec

from penstock.kernel.deadline import timeout
from penstock.kernel.errors import DownstreamUnavailable, Forbidden, PenstockError, Timeout
from penstock.kernel.log import Log
from penstock.kernel.metrics import Counter
from penstock.net.oap.connection import FrameConnection, FrameTimeouts
from penstock.wire.oap.frame import (
    CONTROL,
    EVENT,
    RESP,
    Frame,
    encode,
    split,
)
from penstock.wire.oap.hello import (
    Hello,
    Welcome,
    hello_frame,
    read_welcome,
)
from penstock.wire.oap.problem import decode_problem
from penstock.wire.oap.stream import (
    Decision,
    OapAnswer,
    OapControl,
    OapRefusal,
    StreamTable,
)

LAST_WORDS: Final = 0
OK: Final = 200
OnEvent = Callable[[int, int, bytes], None]


class OapClientConnection(FrameConnection):
    """Owned by its client. Whoever asks waits on a future; nobody else is woken by its answer."""

    def __init__(
        self, table: StreamTable, waits: FrameTimeouts, timeouts: dict[str, Counter], log: Log, on_event: OnEvent | None
    ) -> None:
        """Wait for a transport; `table` has one place more than there may be calls."""
        super().__init__(table, waits, timeouts, log)
        # Stream 0 is never asked on: what comes there is why the peer is about to hang up.
        table.open(LAST_WORDS)
        self._on_event = on_event
        self._replies: dict[int, asyncio.Future[OapAnswer]] = {}
        self._streams: dict[asyncio.Future[OapAnswer], int] = {}
        self._next = 1
        self._ended: asyncio.Future[None] = self._loop.create_future()

    # --- what the client asks

    async def greet(self, hello: Hello) -> Welcome:
        """Exchange HELLO and take the peer's limits; the client brings the deadline."""
        uid = self.peer_uid
        if uid is not None and uid != os.geteuid() and uid != 0:
            raise Forbidden("Another user listens on this socket.", reason="peer_uid")
        reply = self._expect(corr_id := self._corr_id())
        self.send([encode(hello_frame(hello, corr_id))])
        answer = await reply
        if answer.code != OK:
            raise decode_problem(answer.code, answer.payload)
        welcome = read_welcome(Frame(RESP, corr_id, code=answer.code, payload=answer.payload))
        self.lower(welcome.max_frame)
        self.table.max_inflight = min(self.table.max_inflight, welcome.max_inflight + 1)
        return welcome

    def ask(self, request: Frame) -> asyncio.Future[OapAnswer]:
        """Send a request under a new corr_id; raises Busy when the peer's window is full."""
        if not self.is_open:
            raise DownstreamUnavailable("The connection is closing.")
        reply = self._expect(corr_id := self._corr_id())
        self.send(split(msgspec.structs.replace(request, corr_id=corr_id), frame_bytes_max=self.frame_bytes_max))
        return reply

    def withdraw(self, reply: asyncio.Future[OapAnswer]) -> None:
        """Stop waiting: a late answer is dropped, and the peer is told to cancel the work."""
        corr_id = self._streams.pop(reply, None)
        if corr_id is None:
            return
        del self._replies[corr_id]
        self.table.abandon(corr_id)
        self.send_cancel(corr_id)

    def event(self, app_proto_id: int, code: int, payload: bytes) -> bool:
        """Send an event; False when the peer is too slow to take it now."""
        return self.send_event(Frame(EVENT, 0, code=code, app_proto_id=app_proto_id, payload=payload))

    async def shut(self, seconds: float) -> None:
        """Send what is queued and close; abort what is left after `seconds`."""
        self._fail_all(DownstreamUnavailable("The client was closed.", outcome="unknown"))
        self.linger()
        try:
            async with timeout("oap_close", seconds):
                await asyncio.shield(self._ended)
        except Timeout:
            self.abort()

    def _corr_id(self) -> int:
        corr_id = self._next
        self._next += 1
        return corr_id

    def _expect(self, corr_id: int) -> asyncio.Future[OapAnswer]:
        self.table.open(corr_id)
        reply: asyncio.Future[OapAnswer] = self._loop.create_future()
        self._replies[corr_id] = reply
        self._streams[reply] = corr_id
        return reply

    # --- decisions

    @property
    def must_read(self) -> bool:
        """Always read: the peer reads our requests again only when we take its answers."""
        return True

    @property
    def busy(self) -> bool:
        """Tell whether somebody waits for an answer."""
        return self.table.outbound > 1

    def handle(self, decision: Decision) -> None:
        """Give an answer to whoever asked."""
        if isinstance(decision, OapAnswer):
            if decision.corr_id == LAST_WORDS:
                self._hang_up(decode_problem(decision.code, decision.payload))
            else:
                self._settle(decision.corr_id, decision)
        elif isinstance(decision, OapRefusal):
            self._refused(decision)
        elif isinstance(decision, OapControl):
            self._control(decision.frame)

    def _settle(self, corr_id: int, outcome: OapAnswer | PenstockError) -> None:
        reply = self._replies.pop(corr_id, None)
        if reply is None:
            return
        del self._streams[reply]
        if reply.done():
            return
        if isinstance(outcome, PenstockError):
            reply.set_exception(outcome)
            reply.exception()
        else:
            reply.set_result(outcome)

    def _refused(self, refusal: OapRefusal) -> None:
        """Fail the call whose answer broke the rules; an answer to no call means that the peer is confused."""
        blame = DownstreamUnavailable(f"The peer answered nonsense: {refusal.error.detail}", status=502)
        if refusal.corr_id in self._replies:
            self._settle(refusal.corr_id, blame)
        else:
            self.refuse(blame)

    def _control(self, frame: Frame) -> None:
        if not frame.flags & EVENT:
            self.welcome(frame)
        elif frame.app_proto_id != CONTROL and self._on_event is not None:
            self._on_event(frame.app_proto_id, frame.code, frame.payload)

    def refuse(self, fault: PenstockError) -> None:
        """Fail every call and hang up: the peer cannot be understood any more."""
        self._hang_up(DownstreamUnavailable(f"The peer broke the protocol: {fault.detail}", status=502))

    def _hang_up(self, error: PenstockError) -> None:
        self._fail_all(error)
        self.abort()

    def lost(self, error: PenstockError | None) -> None:
        """Fail what is under way: it may or may not have been done."""
        detail = "The connection was closed before the answer." if error is None else error.detail
        self._fail_all(DownstreamUnavailable(detail, outcome="unknown"))
        if not self._ended.done():
            self._ended.set_result(None)

    def _fail_all(self, error: PenstockError) -> None:
        for corr_id in tuple(self._replies):
            self._settle(corr_id, error)
