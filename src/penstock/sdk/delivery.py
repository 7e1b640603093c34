"""One leased message in the hands of a handler: `async with delivery:` is the time the handler runs.

| the block | the message |
|---|---|
| is running | its lease is renewed |
| ends | acked |
| raises `Reject` | nacked with its reason and delay, or dead-lettered if it is final; the block ends quietly |
| raises anything else | nacked with the error's name, backed off by the mailbox; the error goes on |
| is cancelled | given back with no delay, so that another consumer gets it; the cancel goes on |
| settled it itself (`ack`, `nack`) | left as it is |
| lost its lease | the block is interrupted and `LeaseLost` comes out of it; nothing can be settled any more |
"""

from __future__ import annotations

import asyncio
import enum
import random
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Literal, NoReturn, Self, TypeVar

import msgspec

from penstock.contracts import mailbox as m
from penstock.contracts.mailbox_rules import check_envelope
from penstock.kernel.backoff import CALLS
from penstock.kernel.deadline import no_deadline, pause, timeout
from penstock.kernel.errors import Conflict, NotFound, PenstockError
from penstock.kernel.log import Log
from penstock.sdk.errors import LeaseLost, Reject, waiting_mends
from penstock.sdk.lease_keeper import LeaseKeeper, sure_s
from penstock.sdk.telling.lines import as_utf8, tell
from penstock.sdk.telling.message_ends import error_of, is_not_of_the_message, tell_given_back, tell_lost
from penstock.sdk.values import checked

T = TypeVar("T")
OnLost = Literal["interrupt", "tell"]

_REASON_CHARS_MAX: Final = 256
# A cancelled handler gives its message back within this, or leaves it to lapse.
_GIVE_BACK_S: Final = 2.0
# With less of the lease left than this, settling is not tried again.
_SETTLE_S_MIN: Final = 0.02
_log: Final = Log("client")
_rng: Final = random.Random()  # noqa: S311 - spreads retries, keeps no secret


class _Phase(enum.Enum):
    WAITING = "waiting"  # leased, not yet worked on; the lease is left to run out
    WORKING = "working"
    SETTLED = "settled"


class Delivery:
    """A leased message. Its fields are the envelope's; enter it to work on it, once."""

    __slots__ = (
        "__weakref__", "_cancels_before", "_interrupted", "_keeper", "_mailbox", "_on_end", "_on_lost", "_phase",
        "_spared", "_task",
        "ends_at", "envelope", "given_back", "lapses_at", "lost", "msg_id", "receipt", "renew_at",
        "unsettled", "visibility_ms",
    )  # fmt: skip

    def __init__(
        self, envelope: m.Envelope, visibility_ms: int, mailbox: m.Mailbox, keeper: LeaseKeeper, *, on_lost: OnLost
    ) -> None:
        """Hold a lease that was just given."""
        now = asyncio.get_running_loop().time()
        self.envelope = envelope
        self.msg_id = envelope.msg_id
        self.receipt = envelope.receipt
        self.visibility_ms = visibility_ms
        self.ends_at = now + sure_s(visibility_ms)
        # When the mailbox takes it back, unless somebody begins.
        self.lapses_at = now + visibility_ms / 1000
        self.renew_at = self.ends_at
        # Set when the lease ended before its holder did.
        self.lost: LeaseLost | None = None
        # What the mailbox said when the message was given back after a failure.
        self.given_back: m.Nacked | None = None
        # Why it could not be acked or given back: it comes again when its lease ends.
        self.unsettled: PenstockError | None = None
        self._mailbox = mailbox
        self._keeper = keeper
        self._on_lost = on_lost
        self._on_end: Callable[[Delivery], None] = _nobody
        self._phase = _Phase.WAITING
        self._task: asyncio.Task[object] | None = None
        self._cancels_before = 0
        self._interrupted = False
        # Whether a cancel is its consumer's, which stops: then the attempt does not count.
        self._spared = False

    # --- the message

    @property
    def payload(self) -> bytes:
        """Return the message's bytes."""
        return self.envelope.payload

    def text(self) -> str:
        """Return the payload as text; `ValueError` when it is not UTF-8."""
        return self.envelope.text()

    def json(self) -> Any:  # noqa: ANN401 - whatever was sent
        """Return the payload as the JSON value it is; `ValueError` when it is none."""
        return self.envelope.json()

    @property
    def topic(self) -> str:
        """Return where it was sent to."""
        return self.envelope.topic

    @property
    def key(self) -> str | None:
        """Return its ordering key."""
        return self.envelope.key

    @property
    def attrs(self) -> dict[str, str]:
        """Return what the sender attached."""
        return self.envelope.attrs

    @property
    def attempt(self) -> int:
        """Return how often it was delivered, this time included."""
        return self.envelope.attempt

    @property
    def settled(self) -> bool:
        """Tell whether the message is settled or its lease lost."""
        return self._phase is _Phase.SETTLED

    @property
    def begun(self) -> bool:
        """Tell whether somebody works on it, or did."""
        return self._phase is not _Phase.WAITING

    def lapsed(self, now: float) -> bool:
        """Tell whether nobody began to work on it while its lease lasted."""
        return self._phase is _Phase.WAITING and now >= self.lapses_at

    # --- settling

    async def ack(self) -> None:
        """Acknowledge the message: it is not delivered again. Retried until the lease ends; then `LeaseLost`."""
        await self._settle(lambda: self._mailbox.ack(m.Ack(self.msg_id, self.receipt)))

    async def nack(self, reason: str | None = None, *, delay_ms: int | None = None, final: bool = False) -> None:
        """Give the message back, to be delivered again. Without `delay_ms` the mailbox backs off with full jitter.

        With `final` it is not delivered again: it is a dead letter at once.
        """
        await self._reject(reason, delay_ms=delay_ms, final=final)
        if self.given_back is not None and self.given_back.dead_lettered:
            tell_given_back(self.topic, self, reason)

    async def _reject(
        self, reason: str | None, *, delay_ms: int | None, final: bool, origin: BaseException | None = None
    ) -> None:
        nack = checked(
            m.Nack, msg_id=self.msg_id, receipt=self.receipt, reason=_cut(reason), delay_ms=delay_ms, final=final
        )
        await self._nack(nack if origin is None else msgspec.structs.replace(nack, error=error_of(origin)))

    async def _nack(self, nack: m.Nack) -> None:
        self.given_back = await self._settle(lambda: self._mailbox.nack(nack))

    async def _settle(self, act: Callable[[], Awaitable[T]]) -> T:
        """Settle once, and never after the lease. The keeper stops renewing first, so that no renewal crosses it."""
        if self.lost is not None:
            raise self.lost
        if self._phase is _Phase.SETTLED:
            raise RuntimeError("the delivery is settled already")
        self._phase = _Phase.SETTLED
        self._keeper.release(self)
        try:
            self._check_in_time()
            return await self._persist(act)
        except LeaseLost:
            raise
        except (Conflict, NotFound) as stale:
            self.lost = LeaseLost()
            self.lost.facts.update(stale.facts)
            raise self.lost from stale
        except PenstockError as refused:
            self.unsettled = refused
            raise
        finally:
            self._on_end(self)

    def _check_in_time(self) -> None:
        """Raise `LeaseLost` if the lease has ended: a handler that blocks the loop keeps the keeper from noticing."""
        if asyncio.get_running_loop().time() >= self.ends_at:
            self.lost = LeaseLost(reason="lapsed")
            raise self.lost

    async def _persist(self, act: Callable[[], Awaitable[T]]) -> T:
        """Retry until the lease ends, because a lost answer must not bring a finished message back."""
        loop, tries = asyncio.get_running_loop(), 0
        while True:
            try:
                async with timeout("settle", max(0.0, self.ends_at - loop.time())):
                    return await act()
            except PenstockError as error:
                left_s = self.ends_at - loop.time()
                if not waiting_mends(error) or left_s < _SETTLE_S_MIN:
                    raise
            delay_s = min(CALLS.delay(tries, _rng), left_s / 2)
            tries += 1
            await pause("settle_pause", delay_s)

    def _end(self) -> None:
        self._phase = _Phase.SETTLED
        self._keeper.release(self)
        self._on_end(self)

    def on_end(self, call: Callable[[Delivery], None]) -> None:
        """Call `call` when the message is settled or its lease lost."""
        self._on_end = call

    # --- the block

    def __enter__(self) -> NoReturn:
        """Say how a delivery is used: `with` alone cannot await its ack."""
        raise TypeError("write `async with delivery`")

    def __exit__(self, *_exc: object) -> None:
        """Be there, so that `with` gets as far as `__enter__`."""

    async def __aenter__(self) -> Self:
        """Begin to work: from now on the lease is renewed."""
        if self._phase is not _Phase.WAITING:
            raise RuntimeError("a delivery is entered once")
        if asyncio.get_running_loop().time() >= self.ends_at:
            self.lost = LeaseLost(reason="not_begun")
            self._end()
            raise self.lost
        self._keeper.hold(self)
        self._phase = _Phase.WORKING
        self._task = asyncio.current_task()
        self._cancels_before = self._task.cancelling() if self._task is not None else 0
        try:
            check_envelope(self.envelope)
        except PenstockError as damaged:
            await self._give_back(damaged.code, damaged)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> bool:
        """Settle by how the block ended."""
        ours = self._take_back_cancel()
        if self.lost is not None:
            return self._tell_lost(error, ours=ours)
        if self._phase is _Phase.SETTLED:
            return False
        if error is None:
            await self.ack()
        elif isinstance(error, Reject):
            await self._reject(error.reason, delay_ms=error.delay_ms, final=error.final, origin=error.origin)
            tell_given_back(self.topic, self, error.reason)
            return True
        elif isinstance(error, Exception) or self._is_own_cancel(error):
            _log.debug("delivery.failed", topic=self.topic, msg_id=self.msg_id, error=type(error).__name__)
            await self._give_back(type(error).__name__, error)
        else:
            await self._give_back("canceled", delay_ms=0, uncounted=self._spared)
        return False

    def spare(self) -> None:
        """Do not count this attempt if the block is cancelled: its consumer stops."""
        self._spared = True

    def lose(self, lost: LeaseLost) -> None:
        """Note that the lease is lost, and interrupt the block unless the user chose `on_lost="tell"`."""
        self.lost = lost
        self._end()
        interrupts = self._on_lost == "interrupt" and self._task is not None
        tell_lost(self.topic, self, lost, "the handler is interrupted; " if interrupts else "")
        if interrupts and self._task is not None:
            self._interrupted = True
            self._task.cancel()

    def _take_back_cancel(self) -> bool:
        """Take back the cancel that `lose` sent, and tell whether it was the only one."""
        if not self._interrupted or self._task is None:
            return False
        # lint: allow PK013 our own cancel and no other, as a timeout does
        return self._task.uncancel() <= self._cancels_before

    def _is_own_cancel(self, error: BaseException) -> bool:
        """Tell whether only something that the block awaited was cancelled: then the block failed."""
        sent = self._task is not None and self._task.cancelling() > self._cancels_before
        return isinstance(error, asyncio.CancelledError) and not sent

    def _tell_lost(self, error: BaseException | None, *, ours: bool) -> bool:
        assert self.lost is not None
        if error is None or (ours and isinstance(error, asyncio.CancelledError)):
            raise self.lost from error
        return False

    async def _give_back(
        self,
        reason: str,
        error: BaseException | None = None,
        *,
        delay_ms: int | None = None,
        uncounted: bool = False,
    ) -> None:
        """Nack after an error, which stays the one that is raised. If the nack fails too, the lease lapses.

        A call of our own that was refused for its token, or a handler of the wrong kind, is not the message's fault:
        the attempt does not count.
        """
        uncounted = uncounted or (error is not None and is_not_of_the_message(error))
        told = None if error is None or uncounted else error_of(error)
        nack = m.Nack(self.msg_id, self.receipt, _cut(reason), 0 if uncounted else delay_ms, told, uncounted)
        try:
            # The deadline that ended the block has passed, and must not end this too.
            with no_deadline():
                async with timeout("give_back", _GIVE_BACK_S):
                    await self._nack(nack)
        except PenstockError as refused:
            if self.lost is None:
                # The time for it may have run out while it was tried again: then nobody has noted why.
                self.unsettled = self.unsettled or refused
            if error is None:  # nobody else tells it: the work was cancelled, and that goes on
                said = f"message {self.msg_id} of {self.topic} could not be given back, attempt {self.attempt}"
                fields = {"topic": self.topic, "msg_id": self.msg_id, "code": refused.code}
                tell("delivery.not_settled", f"{said}: {refused}; it comes again when its lease ends", **fields)


def _cut(reason: str | None) -> str | None:
    return as_utf8(reason)[:_REASON_CHARS_MAX] if isinstance(reason, str) else reason


def _nobody(_delivery: Delivery) -> None:
    """Do nothing."""
