"""What travels from the intake to a worker: a webhook or a put, with the place where its answer is awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple, TypeAlias, TypeGuard

from penstock.contracts.storage import Stored
from penstock.kernel.worker import Job
from penstock.net.message import Response
from penstock.services.interop.endpoints import WebhookEndpoint
from penstock.services.interop.providers.verdict import WebhookRequest


class WebhookWork(NamedTuple):
    """A webhook as it arrived, the endpoint it came to, and when (Unix milliseconds)."""

    endpoint: WebhookEndpoint
    request: WebhookRequest
    at_ms: int


class PutWork(NamedTuple):
    """Bytes to store, as they arrive. `expect` is the address they must have, if the caller named one."""

    pieces: AsyncIterator[bytes]
    expect: str | None


WebhookJob: TypeAlias = Job[WebhookWork, Response]
PutJob: TypeAlias = Job[PutWork, Stored]
BridgeJob: TypeAlias = WebhookJob | PutJob


def is_webhook(job: BridgeJob) -> TypeGuard[WebhookJob]:
    """Tell whether a job is a webhook."""
    return isinstance(job.value, WebhookWork)


def is_put(job: BridgeJob) -> TypeGuard[PutJob]:
    """Tell whether a job is a put."""
    return isinstance(job.value, PutWork)
