"""Endpoints as the settings describe them: which check, which topic, who may send; swapped in one step."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from penstock.contracts.mailbox import NEW_TOPIC
from penstock.services.interop.events import KeptHeaders
from penstock.services.interop.origins import Network, OriginPin, read_networks
from penstock.services.interop.providers.kinds import make_verifier
from penstock.services.interop.providers.pointers import ClaimRule, DeliveryValue
from penstock.services.interop.providers.setup import WebhookSetup
from penstock.services.interop.providers.verdict import BadWebhookSetup, WebhookVerifier

# The rule of the mailbox contract for a topic.
_TOPIC: Final = re.compile(NEW_TOPIC)
_TOPIC_LENGTH_MAX: Final = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class WebhookEndpoint:
    """One endpoint, ready to be used."""

    name: str
    kind: str
    topic: str
    verifier: WebhookVerifier
    headers: KeptHeaders
    pin: OriginPin
    claim: ClaimRule
    # What orders the events of one key; None: they are not ordered.
    key: DeliveryValue | None
    pauses_on_attack: bool


Endpoints: TypeAlias = Mapping[str, WebhookEndpoint]
NO_ENDPOINTS: Final[Endpoints] = MappingProxyType({})


def make_endpoints(rows: Mapping[str, Mapping[str, Any]], public_url: str, proxies: Sequence[str]) -> Endpoints:
    """Make every endpoint; raises BadWebhookSetup with a sentence that names the first one that cannot work."""
    trusted = _networks(proxies, "interop.trusted_proxies")
    return MappingProxyType({name: _named(name, row, public_url, trusted) for name, row in rows.items()})


def _named(name: str, row: Mapping[str, Any], public_url: str, trusted: Sequence[Network]) -> WebhookEndpoint:
    try:
        return _make(name, row, public_url, trusted)
    except BadWebhookSetup as exc:
        raise BadWebhookSetup(f"{name}: {exc}") from exc


def _make(name: str, row: Mapping[str, Any], public_url: str, trusted: Sequence[Network]) -> WebhookEndpoint:
    kind, topic = row["kind"] or name, row["topic"] or f"webhooks/{name}"
    if len(topic) > _TOPIC_LENGTH_MAX or not _TOPIC.search(topic):
        raise BadWebhookSetup("`topic` is 1 to 200 letters, digits and . _ : -, in parts between single slashes")
    verifier = make_verifier(kind, _setup(row, public_url))
    return WebhookEndpoint(
        name=name,
        kind=kind,
        topic=topic,
        verifier=verifier,
        headers=KeptHeaders(verifier),
        pin=OriginPin(ips=_networks(row["allow_ips"], "allow_ips"), hosts=row["allow_hosts"], proxies=trusted),
        claim=ClaimRule(row["claim"]),
        key=DeliveryValue(row["key"]) if row["key"] else None,
        pauses_on_attack=row["on_attack"] == "pause",
    )


def _setup(row: Mapping[str, Any], public_url: str) -> WebhookSetup:
    return WebhookSetup(
        secrets=tuple(secret.reveal().encode("utf-8") for secret in row["secrets"]),
        tolerance_s=row["tolerance_s"],
        public_url=public_url,
        header=row["header"],
        format=row["format"],
        template=row["template"],
        timestamp_header=row["timestamp_header"],
        id_header=row["id_header"],
    )


def _networks(texts: Sequence[str], name: str) -> tuple[Network, ...]:
    try:
        return read_networks(texts)
    except ValueError as exc:
        raise BadWebhookSetup(f"`{name}`: {exc}") from exc
