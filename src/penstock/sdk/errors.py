"""Errors of the client: there is no node, a lease was lost, a message is rejected."""

from __future__ import annotations

import msgspec

from penstock.contracts.mailbox import DelayMs, check_final
from penstock.kernel.errors import Canceled, Conflict, DownstreamUnavailable, Internal, PenstockError, Unauthenticated
from penstock.sdk.values import checked


class NoNode(DownstreamUnavailable):
    """No node is running here: start one with `penstock up`, or name its data directory."""


class NoToken(Unauthenticated):
    """There is no token to act with."""


class NoService(DownstreamUnavailable):
    """The node runs no such service."""

    # Waiting does not bring it.
    retryable = False


class ClientClosed(Canceled):
    """The client was closed."""


class LeaseLost(Conflict):
    """The lease ended before its holder did: another consumer may have the message by now."""

    # Whether a person was told already.
    told = False


class ConsumerStopped(PenstockError):
    """A call that the handler made was refused for its token. The message was given back, and the consumer stopped."""

    code = "forbidden"
    status = 403


class _Rejection(msgspec.Struct):
    """What the mailbox takes with a nack."""

    delay_ms: DelayMs | None = None
    final: bool = False

    def __post_init__(self) -> None:
        """Refuse a message that is dead and comes again."""
        check_final(final=self.final, uncounted=False, delay_ms=self.delay_ms)


class Reject(Exception):
    """Raise this inside a delivery's block to give the message back with a reason and a delay, or to end it."""

    def __init__(
        self, reason: str | BaseException | None = None, *, delay_ms: int | None = None, final: bool = False
    ) -> None:
        """Without `delay_ms` the mailbox backs off with full jitter. An error as the reason is taken as its text.

        With `final` the message can never work: it is a dead letter at once, whatever attempts are left. The error that
        this one was raised from is kept in the dead letter's history.
        """
        # A wrong delay is the handler's mistake, and is told as that: later, the message could not be given back.
        checked(_Rejection, delay_ms=delay_ms, final=final)
        super().__init__(reason or "rejected")
        self.reason = None if reason is None else str(reason)
        self.delay_ms = delay_ms
        self.final = final

    @property
    def origin(self) -> BaseException | None:
        """Return the error that made the handler reject: the one it was raised from, or during, or its reason."""
        if self.__cause__ is not None or self.__suppress_context__:
            return self.__cause__
        if self.__context__ is not None:
            return self.__context__
        reason: object = self.args[0]
        return reason if isinstance(reason, BaseException) else None


def waiting_mends(error: PenstockError) -> bool:
    """Tell whether a later try may succeed: the node was away, busy, or failed itself.

    A shutdown that cuts a call (`canceled`) and a crash under it (`internal`) are over when the node is back. What is
    wrong with an address at which no node ever answered (`first_contact`) stays.
    """
    if "wrong_place" in error.facts:
        return False
    return error.retryable or (isinstance(error, Canceled | Internal) and not isinstance(error, ClientClosed))
