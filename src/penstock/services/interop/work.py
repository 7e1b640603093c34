"""What travels from the intake to a worker: a webhook or a put, with the place where its answer is awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NamedTuple, Protocol, TypeAlias

from penstock.contracts.storage import Stored
from penstock.kernel.deadline import Deadline
from penstock.kernel.errors import PenstockError, forget_where
from penstock.kernel.worker import Job
from penstock.net.message import AcceptedJson
from penstock.net.promise import Promise
from penstock.services.interop.endpoints import WebhookEndpoint
from penstock.services.interop.providers.verdict import WebhookRequest, WebhookVerdict


class WebhookWork(NamedTuple):
    """A verified webhook: the endpoint it came to, what was found, and when it came (Unix milliseconds)."""

    endpoint: WebhookEndpoint
    request: WebhookRequest
    verdict: WebhookVerdict
    at_ms: int


class PutWork(NamedTuple):
    """Bytes to store, as they arrive. `expect` is the address they must have, if the caller named one."""

    pieces: AsyncIterator[bytes]
    expect: str | None


class AnswerCounter(Protocol):
    """Counts answers for the brownout."""

    def answered(self, status: int) -> None:
        """Count an answer."""

    def gave_up(self, deadline: Deadline) -> None:
        """Count one that nobody waits for any more."""


class WebhookPromise(Promise):
    """The answer to a webhook: written by the step that brings it, and counted there."""

    __slots__ = ("_counter", "_deadline")

    def __init__(self, counter: AnswerCounter, deadline: Deadline) -> None:
        """Count the answer with `counter`."""
        super().__init__()
        self._counter = counter
        self._deadline = deadline

    def resolve(self, result: Any) -> None:  # noqa: ANN401 - AcceptedJson or an error
        """Tell who waits."""
        if not self.done:
            self._counter.answered(result.status if isinstance(result, PenstockError) else 202)
            super().resolve(result)

    def cancel(self) -> None:
        """Give up: the client is gone, or its deadline passed."""
        if not self.done:
            self._counter.gave_up(self._deadline)
            super().cancel()


class WebhookJob(Job[WebhookWork, AcceptedJson]):
    """A webhook, answered through a promise: no future and no further turn of the loop."""

    __slots__ = ("promise",)

    def __init__(self, value: WebhookWork, promise: WebhookPromise, deadline: Deadline, corr_id: str) -> None:
        """Hold a webhook for a worker, which answers it through `promise`."""
        self.value = value
        self.deadline = deadline
        self.corr_id = corr_id
        self.taken = False
        self.promise = promise

    def take(self) -> bool:
        """Claim the job for a worker; False when nobody waits for it any more."""
        self.taken = not self.promise.done
        return self.taken

    def withdraw(self) -> bool:
        """Take the job back because nobody waits any more; False once a worker has it."""
        if self.taken or self.promise.done:
            return False
        self.promise.cancel()
        return True

    def done(self, result: AcceptedJson) -> None:
        """Answer; an answer nobody waits for any more is dropped."""
        self.promise.resolve(result)

    def fail(self, error: PenstockError) -> None:
        """Answer with an error."""
        self.promise.resolve(forget_where(error))


PutJob: TypeAlias = Job[PutWork, Stored]
BridgeJob: TypeAlias = WebhookJob | PutJob
