"""Passes webhooks on to a program nearby: each event of a topic as the request that it was.

While the program cannot be reached the message is held and its lease renewed, so an hour without the program costs no
attempt and loses nothing. An answer of 2xx acknowledges the message. Any other answer, none in time, or a connection
that breaks gives the message back: it comes again later, and after the topic's last attempt it is a dead letter.

The request has the event's own body and its header fields. Signatures and secrets never enter an event, so the program
must not check them: the bridge has.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, NamedTuple, Self

import msgspec

from penstock.kernel.backoff import FullJitter
from penstock.kernel.deadline import pause
from penstock.kernel.errors import DownstreamUnavailable, Malformed, Timeout
from penstock.net.calls.client import ClientOptions, HttpClient
from penstock.sdk.connecting import Client
from penstock.sdk.delivery import Delivery
from penstock.sdk.errors import Reject

ANSWER_S: Final = 30.0
_PAUSE: Final = FullJitter(0.2, cap_s=5.0)
_rng: Final = random.Random()  # noqa: S311 - spreads retries, keeps no secret


class ForwardedWebhook(NamedTuple):
    """What became of one try: the answer's status, or why there is none."""

    msg_id: str
    event_type: str
    event_id: str
    status: int
    why: str = ""


class _ForwardedEvent(msgspec.Struct, frozen=True):
    """What is read of an event."""

    id: str = ""
    type: str = ""
    headers: dict[str, str] = {}
    body: str | None = None
    body_b64: bytes | None = None
    body_addr: str | None = None


_read: Final = msgspec.json.Decoder(_ForwardedEvent).decode


class WebhookForwarder:
    """A handler for `client.mailbox.run(topic, forwarder.handle)`. Close it, or use it by `async with`."""

    def __init__(self, client: Client, url: str, told: Callable[[ForwardedWebhook], None]) -> None:
        """Forward to `url`; `told` hears of every try."""
        self._client = client
        self._url = url
        self._told = told
        # One try each: what follows a failure is decided here.
        options = ClientOptions(service="program", op="forward", timeout_s=ANSWER_S, tries_max=1)
        self._http = HttpClient(client.inventory, options)

    async def __aenter__(self) -> Self:
        """Hand out the forwarder."""
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Close the connections."""
        await self._http.close()

    async def handle(self, delivery: Delivery) -> None:
        """Pass one event on, however long the program is away."""
        try:
            event = _read(delivery.payload)
        except msgspec.MsgspecError as exc:
            raise Reject("not_an_event") from exc
        body = await self._body(event)
        failures = 0
        while not await self._try(delivery, event, body):
            await pause("forward_pause", _PAUSE.delay(failures, _rng))
            failures += 1

    async def _body(self, event: _ForwardedEvent) -> bytes:
        if event.body_addr is not None:
            return await self._client.storage.get(event.body_addr)
        return event.body_b64 if event.body_b64 is not None else (event.body or "").encode("utf-8")

    async def _try(self, delivery: Delivery, event: _ForwardedEvent, body: bytes) -> bool:
        """Send the request once; False while nobody is there, Reject when the program does not want it."""
        headers = [(name.encode("ascii", "replace"), value.encode("utf-8")) for name, value in event.headers.items()]
        headers.append((b"x-penstock-msg-id", delivery.msg_id.encode("ascii")))
        headers.append((b"x-penstock-attempt", str(delivery.attempt).encode("ascii")))
        status, why = 0, ""
        try:
            answer = await self._http.request("POST", self._url, headers=headers, body=body, timeout_s=ANSWER_S)
            status = answer.status
        except (DownstreamUnavailable, Timeout, Malformed) as error:
            why = error.detail
            away = isinstance(error, DownstreamUnavailable) and error.status != 502
            away = away or (isinstance(error, Timeout) and error.op in ("connect", "acquire"))
        else:
            away = False
        self._told(ForwardedWebhook(delivery.msg_id, event.type, event.id, status, why))
        if away:
            return False
        if not 200 <= status < 300:
            raise Reject(f"http_{status}" if status else "no_answer")
        return True
