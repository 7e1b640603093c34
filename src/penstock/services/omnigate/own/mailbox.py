"""The mailbox through the gateway: the topic is in the path, the bodies are the mailbox's own without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta

from penstock.contracts import mailbox as m
from penstock.contracts import mailbox_bodies as bodies
from penstock.contracts.mailbox_rules import PAYLOAD_BYTES_MAX
from penstock.kernel.deadline import timeout
from penstock.kernel.lifecycle import until_drain
from penstock.net.message import Response
from penstock.net.server.route import Route
from penstock.services.omnigate.own.calling import (
    call_of,
    convert,
    present,
    text_of,
)
from penstock.wire.plain_words import size_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from penstock.net.message import Request
    from penstock.services.omnigate.own.calling import DownstreamCalls

LONG_POLL_EXTRA_S: Final = 2.0
WAIT_MS_MAX: Final = 20_000
_ERRORS: Final = (
    "malformed",
    "unauthenticated",
    "expired",
    "forbidden",
    "policy_blocked",
    "over_limit",
    "busy",
    "rate_limited",
    "timeout",
    "not_ready",
    "downstream_unavailable",
)
_FULL: Final = ((b"X-Inflight-Full", b"1"),)


class RecvBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Ask for messages of the path's topic; each is leased for `visibility_ms`."""

    max_messages: Annotated[int, Meta(ge=1, le=m.BATCH_MAX)] = 1
    visibility_ms: m.VisibilityMs | None = None
    wait_ms: Annotated[int, Meta(ge=0, le=WAIT_MS_MAX)] = 0
    max_bytes: m.Positive | None = None

    def __post_init__(self) -> None:
        """Refuse a lease that is too short."""
        m.check_visibility_ms(self.visibility_ms)


class LeasedOut(msgspec.Struct, frozen=True):
    """The leased messages, possibly none."""

    messages: tuple[m.Envelope, ...]


_PARAMS: Final = {"topic": m.Topic}
_NONE: Final = LeasedOut(())
_TOO_LARGE: Final = (
    f"A message holds {size_text(PAYLOAD_BYTES_MAX)} at most: store it with PUT /v1/o and send its address."
)
_SETTLEMENTS: Final[tuple[tuple[str, str, str, type, type, Callable[[Any, None], Any]], ...]] = (
    ("ack", "ack", "Acknowledge a message: it is not delivered again.", bodies.AckIn, m.Acked, bodies.as_ack),
    ("nack", "nack", "Give a message back: it is delivered again.", bodies.NackIn, m.Nacked, bodies.as_nack),
    ("extend", "recv", "Extend a lease.", bodies.ExtendIn, m.Extended, bodies.as_extend),
)


class GatewayMailboxRoutes:
    """`/v1/mailbox/{topic}` and what is below it."""

    def __init__(self, mailbox: m.Mailbox | None, downstream: DownstreamCalls) -> None:
        """Take the mailbox's contract; without one, every route answers that it is not set up."""
        self._mailbox = mailbox
        self._downstream = downstream

    def routes(self) -> list[Route]:
        """Describe the routes."""
        base = "/v1/mailbox/{topic}"
        return [
            Route(
                method="POST",
                path=base,
                params=_PARAMS,
                handler=self._send,
                octets=True,
                body_advice=_TOO_LARGE,
                answer=m.Sent,
                op="send",
                summary="Store the raw body as a message.",
                errors=(*_ERRORS, "conflict", "integrity"),
            ),
            Route(
                method="POST",
                path=f"{base}/recv",
                params=_PARAMS,
                handler=self._recv,
                body=RecvBody,
                answer=LeasedOut,
                op="recv",
                summary="Lease messages; waits up to `wait_ms` for the first.",
                errors=_ERRORS,
                deadline_s=WAIT_MS_MAX / 1000 + LONG_POLL_EXTRA_S,
                long_poll=True,
            ),
            *(
                Route(
                    method="POST",
                    path=f"{base}/{name}",
                    params=_PARAMS,
                    handler=self._settler(name, read),
                    body=body,
                    body_forms=bodies.forms_of(body, in_path=False),
                    answer=answer,
                    answer_many=m.SettledBatch,
                    op=op,
                    summary=text,
                    errors=(*_ERRORS, "not_found", "conflict"),
                )
                for name, op, text, body, answer, read in _SETTLEMENTS
            ),
        ]

    async def _send(self, request: Request) -> m.Sent:
        headers, mailbox = request.headers, present(self._mailbox, "svc-mailbox")
        idem_key = text_of(headers.get(b"idempotency-key"))
        send = convert(
            {
                "topic": request.params["topic"],
                "payload_b64": request.body,
                "idem_key": idem_key,
                "payload_hash": text_of(headers.get(b"x-payload-hash")),
                "attrs": bodies.kind_attrs(text_of(headers.get(b"content-type"))),
            },
            m.Send,
        )
        call = call_of(request)
        # With an idem_key a repeat is one message, so the discipline may try again.
        return await self._downstream.call("send", lambda: mailbox.send(send, call), idempotent=idem_key is not None)

    async def _recv(self, request: Request, asked: RecvBody) -> LeasedOut | Response:
        """Lease at once if messages are there; otherwise wait without holding a slot of the gateway."""
        mailbox, call = present(self._mailbox, "svc-mailbox"), call_of(request)
        # Judged by the mailbox's own rules: a topic of the path is a topic like any other.
        recv = convert({"topic": request.params["topic"]}, m.GetTopic).topic
        now = m.Recv(recv, asked.max_messages, asked.visibility_ms, 0, asked.max_bytes)
        got = await self._downstream.call("recv", lambda: mailbox.recv(now, call), idempotent=False)
        if got.messages or not asked.wait_ms or got.inflight_full:
            return _leased(got)
        later = msgspec.structs.replace(now, wait_ms=asked.wait_ms)

        async def poll() -> m.Received:
            # What a poll may take is what it asked for and a little, not what the longest one may.
            async with until_drain(request.shutdown), timeout("rpc", asked.wait_ms / 1000 + LONG_POLL_EXTRA_S):
                return await mailbox.recv(later, call)
            return m.Received(())

        return await self._wait(request, poll)

    async def _wait(self, request: Request, poll: Callable[[], Awaitable[m.Received]]) -> LeasedOut | Response:
        ticket = request.ticket
        if not ticket.park():
            # As many wait as may: an empty poll, and the client asks again.
            return _NONE
        got = await poll()
        slot = ticket.unpark()
        if slot is not None:
            await slot
        return _leased(got)

    def _settler(
        self, name: str, read: Callable[[Any, None], Any]
    ) -> Callable[[Request, Any], Coroutine[Any, Any, Any]]:
        async def settle(request: Request, body: Any) -> Any:  # noqa: ANN401 - the route says which
            mailbox, value, call = present(self._mailbox, "svc-mailbox"), read(body, None), call_of(request)
            many = isinstance(value, m.AckBatch | m.NackBatch | m.ExtendBatch)
            method = getattr(mailbox, f"{name}_batch" if many else name)
            # A nack moves the attempt on: done twice it is not the same.
            return await self._downstream.call(name, lambda: method(value, call), idempotent=name != "nack")

        return settle


def _leased(got: m.Received) -> LeasedOut | Response:
    if got.inflight_full:
        return Response(200, msgspec.json.encode(LeasedOut(got.messages)), headers=_FULL)
    return LeasedOut(got.messages)
