"""Signs a webhook as its provider would, so that an operator can try an endpoint out without its secret at hand."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import msgspec

from penstock.kernel.errors import Malformed, NotFound
from penstock.net.server.route import Route
from penstock.services.interop.config import endpoints_of
from penstock.services.interop.providers.verdict import BadWebhookSetup
from penstock.services.interop.signing import WebhookTrial, sign_delivery

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.config import Settings
    from penstock.kernel.clock import Clock
    from penstock.net.message import Request
    from penstock.services.interop.signing import SignedDelivery


class SignWebhook(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which endpoint, and the body to sign."""

    name: str
    body: Annotated[bytes, msgspec.Meta(description="The body in Base64.")] = msgspec.field(name="body_b64")
    content_type: str = "application/json"


class SignedWebhook(msgspec.Struct, frozen=True):
    """The path with its query and the header fields of the request; the URL below which its provider sends it."""

    target: str
    fields: tuple[tuple[str, str], ...]
    public_url: str | None


def signed(settings: Settings, clock: Clock, asked: SignWebhook) -> SignedDelivery:
    """Sign a body for an endpoint of these settings; the URL is its path alone."""
    endpoint = endpoints_of(settings).get(asked.name)
    if endpoint is None:
        raise NotFound(
            f"There is no endpoint {asked.name!r}.",
            hint=f"See penstock webhook list; [interop.providers.{asked.name}] in the node's configuration makes one.",
        )
    trial = WebhookTrial(
        kind=endpoint.kind,
        url=f"/webhooks/{asked.name}",
        body=asked.body,
        now=clock.wall(),  # lint: allow PK012 providers sign wall times
        event_id=f"msg_{os.urandom(8).hex()}",
        content_type=asked.content_type,
    )
    return sign_delivery(endpoint.verifier, trial)


class WebhookSigner:
    """The route of the admin listener, for the operator: whoever has that token may send to the topic anyway."""

    def __init__(self, settings: Callable[[], Settings], clock: Clock) -> None:
        """Sign by the settings of the moment."""
        self._settings = settings
        self._clock = clock

    def routes(self) -> list[Route]:
        """Describe the route."""
        return [
            Route(
                method="POST",
                path="/v1/node/webhooks/sign",
                handler=self._sign,
                body=SignWebhook,
                answer=SignedWebhook,
                summary="Sign a body as the provider of an endpoint would.",
                errors=("not_found",),
            )
        ]

    def _sign(self, _request: Request, asked: SignWebhook) -> SignedWebhook:
        settings = self._settings()
        try:
            made = signed(settings, self._clock, asked)
        except (BadWebhookSetup, UnicodeEncodeError) as exc:
            raise Malformed(str(exc)) from exc
        fields = tuple((name.decode("ascii"), value.decode("utf-8")) for name, value in made.fields)
        public = settings["interop.public_url"]
        return SignedWebhook(made.url, fields, None if public is None else str(public))
