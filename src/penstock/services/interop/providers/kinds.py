"""The twelve kinds of sender by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from penstock.services.interop.providers.custom_hmac import CustomHmacVerifier
from penstock.services.interop.providers.discord import DiscordVerifier
from penstock.services.interop.providers.gitlab import gitlab_verifier
from penstock.services.interop.providers.linear import LinearVerifier
from penstock.services.interop.providers.setup import WebhookSetup
from penstock.services.interop.providers.signed_body import GITEA, GITHUB, SHOPIFY, SignedBodyVerifier
from penstock.services.interop.providers.slack import SlackVerifier
from penstock.services.interop.providers.standard_webhooks import StandardVerifier
from penstock.services.interop.providers.stripe import StripeVerifier
from penstock.services.interop.providers.twilio import TwilioVerifier
from penstock.services.interop.providers.verdict import BadWebhookSetup, WebhookVerifier

KINDS: Final[Mapping[str, Callable[[WebhookSetup], WebhookVerifier]]] = MappingProxyType(
    {
        "github": lambda setup: SignedBodyVerifier(GITHUB, setup),
        "gitea": lambda setup: SignedBodyVerifier(GITEA, setup),
        "slack_webhook": SlackVerifier,
        "stripe": StripeVerifier,
        "standard_webhooks": lambda setup: StandardVerifier(setup, "standard_webhooks", b"webhook"),
        "svix": lambda setup: StandardVerifier(setup, "svix", b"svix"),
        "shopify": lambda setup: SignedBodyVerifier(SHOPIFY, setup),
        "twilio": TwilioVerifier,
        "discord": DiscordVerifier,
        "gitlab": gitlab_verifier,
        "linear": LinearVerifier,
        "hmac": CustomHmacVerifier,
    }
)


def make_verifier(kind: str, setup: WebhookSetup) -> WebhookVerifier:
    """Make the verifier of an endpoint; settings that cannot work are refused with a sentence."""
    make = KINDS.get(kind)
    if make is None:
        raise BadWebhookSetup(f"There is no kind {kind!r}; the kinds are {', '.join(KINDS)}.")
    return make(setup)
