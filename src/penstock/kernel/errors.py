"""The one error taxonomy: a class fixes status, retry advice and metric, an instance carries the facts.

Conditions keep the seeds' words. Bugs are not conditions: they stay built-in exceptions.
"""

from __future__ import annotations

import inspect
from typing import ClassVar

# The facts that a text shows behind the sentence, each with its name, as on the command line.
_LABELS = ("reason", "limit", "corr_id")


class PenstockError(Exception):
    """Something the caller should know about went wrong."""

    _title: ClassVar[str] = "Something the caller should know about went wrong."
    code: ClassVar[str] = "internal"
    status: int = 500
    retryable: ClassVar[bool] = False
    # The counter that an occurrence moves; labels are the business of whoever counts.
    metric: ClassVar[str] = "rejected_total"

    def __init__(self, detail: str | None = None, *, status: int | None = None, **facts: object) -> None:
        """Say what happened; `facts` become members of the problem body."""
        self.detail = self.title() if detail is None else detail
        self.facts: dict[str, object] = facts
        if status is not None:
            self.status = status
        super().__init__(self.detail)

    def __str__(self) -> str:
        """Say what happened and what to do; an error that came from a node says also which call it was."""
        said = f"{self.detail} {self.facts['hint']}" if self.facts.get("hint") else self.detail
        if "url" not in self.facts:
            return said
        marks = (self.facts["url"], *(f"{name} {self.facts[name]}" for name in _LABELS if self.facts.get(name)))
        return f"{said} ({self.code}, {', '.join(map(str, marks))})"

    def __init_subclass__(cls) -> None:
        """Take the title from the docstring once a class: refusals are made in numbers."""
        cls._title = inspect.cleandoc(cls.__doc__ or cls.__name__).partition("\n")[0]

    @classmethod
    def title(cls) -> str:
        """Return the first line of the class docstring: documentation and message cannot drift apart."""
        return cls._title

    @property
    def reason(self) -> str:
        """Name the refusal as the `reason` label of `rejected_total` spells it."""
        return self.code


class Busy(PenstockError):
    """A bounded queue, backlog, class or limiter is full."""

    code = "busy"
    status = 429
    retryable = True
    metric = "busy_rejections_total"


class Timeout(PenstockError):
    """A deadline passed before the work was done."""

    code = "timeout"
    status = 504
    retryable = True
    metric = "io_timeouts_total"

    def __init__(self, op: str, *, budget_s: float, status: int | None = None, **facts: object) -> None:
        """Name the operation and the time it was given."""
        self.op = op
        self.budget_s = budget_s
        budget_ms = round(budget_s * 1000)
        detail = f"{op} did not finish within {budget_ms} ms."
        super().__init__(detail, status=status, op=op, budget_ms=budget_ms, **facts)


class Canceled(PenstockError):
    """The work was cut by shutdown."""

    code = "canceled"
    status = 503
    metric = "tasks_canceled_total"


class Lagging(PenstockError):
    """A slow receiver of a broadcast lost its oldest messages."""

    metric = "bus_lagged_total"

    def __init__(self, skipped: int) -> None:
        """Say how many messages were lost."""
        self.skipped = skipped
        super().__init__(f"{skipped} messages were lost to a slow receiver.", skipped=skipped)


class NotReady(PenstockError):
    """A readiness gate is shut, or the service is draining."""

    code = "not_ready"
    status = 503
    retryable = True
    metric = "not_ready_total"


class Backpressure(PenstockError):
    """The service is in brownout and sheds this kind of work."""

    code = "backpressure"
    status = 503
    retryable = True

    @property
    def reason(self) -> str:
        """Spell the reason as the seeds do."""
        return "BACKPRESSURE"


class BackoffRetry(PenstockError):
    """A transient failure of a call that may be tried again."""

    code = "downstream_unavailable"
    status = 503
    retryable = True
    metric = "backoff_retries_total"


class Integrity(PenstockError):
    """A hash or signature does not match the bytes it vouches for."""

    code = "integrity"
    status = 422
    metric = "integrity_fail_total"


class OverLimit(PenstockError):
    """A size, count or ratio is above its limit."""

    code = "over_limit"
    status = 413

    def __init__(self, detail: str | None = None, *, limit: str, status: int | None = None, **facts: object) -> None:
        """Name the limit that was passed."""
        self.limit = limit
        super().__init__(detail, status=status, limit=limit, **facts)


class Closed(PenstockError):
    """The channel was closed and everything in it has been taken."""

    code = "canceled"
    status = 503
    metric = "tasks_canceled_total"


class Malformed(PenstockError):
    """The request cannot be understood."""

    code = "malformed"
    status = 400


class BadOrigin(PenstockError):
    """The sending host is not on the provider's list."""

    code = "bad_origin"
    status = 400


class Unauthenticated(PenstockError):
    """No valid capability or signature came with the request."""

    code = "unauthenticated"
    status = 401


class Expired(PenstockError):
    """The capability is outside its time window."""

    code = "expired"
    status = 401


class Forbidden(PenstockError):
    """The capability does not cover this request."""

    code = "forbidden"
    status = 403


class PolicyBlocked(PenstockError):
    """Policy does not allow this request."""

    code = "policy_blocked"
    status = 403


class NotFound(PenstockError):
    """There is nothing under this name."""

    code = "not_found"
    status = 404


class Conflict(PenstockError):
    """The request contradicts what is already there."""

    code = "conflict"
    status = 409


class Unsupported(PenstockError):
    """The method, encoding, expectation or version is not supported."""

    code = "unsupported"
    status = 415


class RateLimited(PenstockError):
    """A quota is used up."""

    code = "rate_limited"
    status = 429
    retryable = True


class DownstreamUnavailable(PenstockError):
    """A service behind this one did not answer, or answered nonsense."""

    code = "downstream_unavailable"
    status = 503
    retryable = True


class Internal(PenstockError):
    """A bug on our side; quote the corr_id when you report it."""

    code = "internal"
    status = 500


def forget_where(error: PenstockError) -> PenstockError:
    """Drop the traceback of an error that is kept as a value, and return it.

    A traceback holds the frames it passed through, a frame holds its locals, and one of those is often the error:
    a cycle that keeps the whole request alive until the collector comes by. Bugs keep their stack; conditions,
    whose place nobody asks for, do not.
    """
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error


def taxonomy() -> list[type[PenstockError]]:
    """List every error class in the order of this file, for the generated table."""
    return [value for value in globals().values() if isinstance(value, type) and issubclass(value, PenstockError)]


def _by_code() -> dict[str, type[PenstockError]]:
    """Map code to class, for errors that come back over a wire; classes that share a code yield the plain one."""
    plain: tuple[type[PenstockError], ...] = (Canceled, DownstreamUnavailable, Internal)
    table: dict[str, type[PenstockError]] = {}
    for kind in (*plain, *taxonomy()[1:]):
        table.setdefault(kind.code, kind)
    return table


BY_CODE = _by_code()
