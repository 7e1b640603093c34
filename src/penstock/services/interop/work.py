"""What travels from the listener to a worker: a webhook or a put, with the place where its answer is awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TypeAlias

from penstock.kernel.worker import Job
from penstock.net.message import Response
from penstock.services.interop.endpoints import WebhookEndpoint
from penstock.services.interop.providers.verdict import WebhookRequest


@dataclass(frozen=True, slots=True)
class WebhookWork:
    """A webhook as it arrived, and the endpoint it came to."""

    endpoint: WebhookEndpoint
    request: WebhookRequest
    at_ms: int


@dataclass(frozen=True, slots=True)
class PutWork:
    """Bytes to store, as they arrive. `expect` is the address they must have, if the caller named one."""

    pieces: AsyncIterator[bytes]
    expect: str | None


BridgeJob: TypeAlias = Job[WebhookWork | PutWork, Response]
