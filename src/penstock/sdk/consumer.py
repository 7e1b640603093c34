"""The consumer: receives as many messages as it may work on, and renews their leases while it does.

Two ways to use it. A handler, which runs `concurrency` times at once:

    await mailbox.run("orders", handle, concurrency=8)

Or a loop, in which up to `concurrency` deliveries may be unsettled; one task that iterates works on one at a time, and
several tasks may share a consumer:

    async for delivery in mailbox.consume("orders"):
        async with delivery:
            ...
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, NoReturn, Self, get_args

from penstock.contracts import mailbox as m
from penstock.kernel.backoff import FullJitter
from penstock.kernel.deadline import current_deadline, no_deadline, pause, timeout
from penstock.kernel.errors import Malformed, PenstockError, Timeout
from penstock.kernel.metrics import Metrics
from penstock.kernel.scope import Scope
from penstock.sdk.delivery import Delivery, OnLost
from penstock.sdk.errors import ClientClosed, ConsumerStopped, waiting_mends
from penstock.sdk.handlers import WrongHandler, awaited, check_async_handler
from penstock.sdk.lease_keeper import LeaseKeeper
from penstock.sdk.stop_signals import stopping_on_signals
from penstock.sdk.telling.lines import tell
from penstock.sdk.telling.message_ends import FailedDelivery, is_mended, is_not_of_the_message, tell_failure
from penstock.sdk.values import checked
from penstock.wire.plain_words import age_text

Handler = Callable[[Delivery], Awaitable[object]]

_rng: Final = random.Random()  # noqa: S311 - spreads retries, keeps no secret
_WAIT_AFTER_OUTAGE_MS: Final = 500
# Between two polls of a node that is not there, or that has nothing to give for now.
_PAUSE: Final = FullJitter(0.2, cap_s=5.0)
_CALL_S: Final = 10.0
_VISIBILITY_MS: Final = 30_000
# Handlers that outlast the drain are cancelled; this is how long they may take to give their messages back.
_ABORT_S: Final = 3.0
# What a poll brought that nobody works on any more is handed back within this, or left to lapse.
_HAND_BACK_S: Final = 2.0
# Turns of the loop in which an answer that has come is read to its end, and a connection that was cut is closed.
_TURNS: Final = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsumeOptions:
    """How to consume; `MailboxClient.consume` says what each means."""

    concurrency: int
    visibility_ms: int
    wait_ms: int
    drain_s: float
    on_lost: OnLost


def consumer_of(
    mailbox: m.Mailbox, topic: str, keeper: LeaseKeeper, metrics: Metrics, options: ConsumeOptions
) -> Consumer:
    """Make a consumer from its user's options."""
    places: object = options.concurrency
    if not isinstance(places, int) or not 1 <= places <= m.BATCH_MAX:
        raise Malformed(f"concurrency is a whole number from 1 to {m.BATCH_MAX}, not {places!r}.")
    if options.on_lost not in get_args(OnLost):
        raise Malformed(f"on_lost is one of {', '.join(get_args(OnLost))}, not {options.on_lost!r}.")
    drain_s: object = options.drain_s
    if not isinstance(drain_s, int | float) or drain_s < 0:
        raise Malformed(f"drain_s is a number of seconds from 0 on, not {drain_s!r}.")
    ask = checked(
        m.Recv,
        topic=topic,
        max_messages=places,
        visibility_ms=options.visibility_ms,
        wait_ms=options.wait_ms,
    )
    return Consumer(MessageSource(mailbox, ask, keeper, on_lost=options.on_lost), metrics, drain_s=options.drain_s)


class MessageSource:
    """Polls for messages. Errors that may pass with time are waited out; others are raised."""

    def __init__(self, mailbox: m.Mailbox, ask: m.Recv, keeper: LeaseKeeper, *, on_lost: OnLost) -> None:
        """Poll with the values of `ask`."""
        self.ask = ask
        # A consumer renews its leases, so it always says how long they are; 0 would be none.
        self.visibility_ms = ask.visibility_ms or _VISIBILITY_MS
        self._mailbox = mailbox
        self._keeper = keeper
        self._on_lost: OnLost = on_lost
        self._failures = 0
        # Whether the last poll failed.
        self._waiting = False

    async def poll(self, places: int) -> list[Delivery]:
        """Lease up to `places` messages; none after a wait, or after a pause when the node is not there."""
        loop, ask = asyncio.get_running_loop(), self.ask
        if self._keeper.closed:
            raise ClientClosed
        began_at = loop.time()
        # After an outage the first answer comes soon: a person who reads the log waits for it.
        wait_ms = min(ask.wait_ms, _WAIT_AFTER_OUTAGE_MS) if self._waiting else ask.wait_ms
        wanted = m.Recv(ask.topic, places, self.visibility_ms, wait_ms)
        try:
            async with timeout("poll", _CALL_S + wait_ms / 1000):
                received = await self._mailbox.recv(wanted)
        except PenstockError as error:
            if not waiting_mends(error):
                raise
            self._tell_waiting(error)
            await pause("consumer_pause", max(_hint_s(error), _PAUSE.delay(self._failures, _rng)))
            self._failures += 1
            return []
        self._tell_answered()
        if received.messages:
            self._failures = 0
        elif received.inflight_full or loop.time() - began_at <= wait_ms / 2000:
            # Nothing was waited for: the next poll would come at once, and the next, and the next.
            await pause("consumer_pause", _PAUSE.delay(1, _rng))
        return [self._delivery(envelope) for envelope in received.messages]

    def _tell_waiting(self, error: PenstockError) -> None:
        """Tell of an outage once: each poll of it fails."""
        if not self._waiting:
            self._waiting = True
            line = f"the consumer of {self.ask.topic} waits for the node and asks again: {error}"
            tell("consumer.waits", line, topic=self.ask.topic, code=error.code)

    def _tell_answered(self) -> None:
        if self._waiting:
            self._waiting = False
            tell(
                "consumer.goes_on", f"the consumer of {self.ask.topic} goes on: the node answers", topic=self.ask.topic
            )

    async def hand_back(self, found: list[Delivery]) -> None:
        """Return messages that nobody began to work on: others have them at once, and no attempt is used."""
        if not found:
            return
        nacks = tuple(m.Nack(each.msg_id, each.receipt, "not_begun", 0, None, uncounted=True) for each in found)
        # If that fails, they come again when their leases end.
        with suppress(PenstockError), no_deadline():
            async with timeout("hand_back", _HAND_BACK_S):
                await self._mailbox.nack_batch(m.NackBatch(nacks))

    def _delivery(self, envelope: m.Envelope) -> Delivery:
        return Delivery(envelope, self.visibility_ms, self._mailbox, self._keeper, on_lost=self._on_lost)


class Consumer:
    """An endless iterator over deliveries; `run` calls a handler for each."""

    def __init__(self, source: MessageSource, metrics: Metrics, *, drain_s: float) -> None:
        """Take from the source; nothing is asked for before the first iteration."""
        self.topic = source.ask.topic
        self.concurrency = source.ask.max_messages
        self._source = source
        self._metrics = metrics
        self._drain_s = drain_s
        self._stopped = False
        # The refusal of a call of the SDK's own, inside a handler, that ended this consumer.
        self.stopped_by: BaseException | None = None
        # Deliveries handed out and not settled, and places that a poll under way may fill.
        self._out: dict[Delivery, None] = {}
        self._reserved = 0
        self._polls: dict[_Poll, None] = {}
        # Twice as many: a task is still there for a moment when its poll has ended.
        self._polling = Scope("poll", 2 * self.concurrency, metrics)
        self._freed = asyncio.Event()

    def stop(self) -> None:
        """Take no more messages, at once: iteration ends, and `run` returns when its handlers have.

        A poll under way is cut, and what it brought just then is handed back. Only a message that the node sends in the
        very moment in which the connection closes comes back to others when its lease ends.
        """
        self._stopped = True
        self._freed.set()
        for poll in self._polls:
            poll.cut()

    # --- as an iterator

    def __iter__(self) -> NoReturn:
        """Say how a consumer is used: `for` alone cannot await a message."""
        raise TypeError("write `async for delivery in consumer`, or use penstock.client.sync")

    def __aiter__(self) -> Self:
        """Iterate; several tasks may."""
        return self

    async def __anext__(self) -> Delivery:
        """Wait for a free place, then for a message."""
        while not self._stopped:
            found = await self.next()
            if found is not None:
                return found
        raise StopAsyncIteration

    async def next(self) -> Delivery | None:
        """Wait for a free place and poll once; None when nothing came."""
        await self._free_places()
        taken = await self._take(1)
        return taken[0] if taken else None

    # --- under a handler

    async def run(self, handler: Handler, *, stop_on_signals: bool = False) -> None:
        """Have `handler` work on every message until cancelled or stopped, then let what runs finish.

        What the handler raises is told and nacked; what a poll raises because waiting cannot mend it ends the run. A
        call of the SDK's own that is refused for its token (401, 403) ends it too, with `ConsumerStopped`: it would be
        refused for every message. A handler that is no async function is a `TypeError`. With `stop_on_signals`, SIGTERM
        and Ctrl-C stop the consumer, and `run` returns.
        """
        check_async_handler(handler)
        # In a turn of the loop: a signal comes between any two steps of the program.
        stop_soon = partial(asyncio.get_running_loop().call_soon_threadsafe, self.stop)
        with stopping_on_signals(stop_soon, wanted=stop_on_signals):
            await self._run(handler)

    async def _run(self, handler: Handler) -> None:
        # Twice as many: a task is still there for a moment when it has given its place back.
        scope = Scope("handler", 2 * self.concurrency, self._metrics)
        try:
            while not self._stopped:
                places = await self._free_places()
                for delivery in await self._take(places):
                    scope.start(self._work(delivery, handler), name=f"handler of {self.topic}")
        finally:
            await self._drain(scope)  # lint: allow PK014 bounded inside, by drain_s and the abort's time
        self.check_stopped()

    async def _work(self, delivery: Delivery, handler: Handler) -> None:
        """Run the handler for one message. A handler that settles early keeps its place until it returns."""
        delivery.on_end(_not_yet)
        try:
            async with delivery:
                await self._handled(delivery, handler)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody cancelled this task: what the handler awaited was cancelled, and the handler failed by it.
            self.failed(delivery, error)
        except Exception as error:  # noqa: BLE001  # lint: allow PK015 a handler that fails is nacked, others go on
            self.failed(delivery, error)
        finally:
            self._ended(delivery)

    async def _handled(self, delivery: Delivery, handler: Handler) -> None:
        try:
            await awaited(handler(delivery))
        except Exception as error:
            await self.end_by(error)
            raise

    async def end_by(self, error: BaseException) -> None:
        """End every poll before a message is given back for an error that would meet every message.

        Otherwise this consumer's own poll takes it again, and drops it.
        """
        if is_not_of_the_message(error) and not is_mended(error):
            self.stopped_by = self.stopped_by or error
            await self._end_polls()

    async def _end_polls(self) -> None:
        """End every poll, and let the node hear of that before it hears of a message that is given back."""
        polls = tuple(self._polls)
        self.stop()
        for poll in polls:
            await poll.ended()
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    def failed(self, delivery: FailedDelivery, error: BaseException) -> None:
        """Tell and count a failure of a handler, or of settling its message.

        A call of ours that was refused for its token would fail with every message, and so would a handler of the wrong
        kind: the consumer stops instead.
        """
        kind = type(error).__name__
        self._metrics.counter("job_failures_total", "Jobs that raised.", worker="handler", type=kind).value += 1
        if not isinstance(error, WrongHandler):
            tell_failure(self.topic, delivery, error)
        if is_not_of_the_message(error) and not is_mended(error) and self.stopped_by is None:
            self.stopped_by = error
            self.stop()

    def check_stopped(self) -> None:
        """Raise `ConsumerStopped` if a refused token ended the consumer, or say that its handler is of no use."""
        if isinstance(self.stopped_by, WrongHandler):
            raise self.stopped_by
        if self.stopped_by is not None:
            # Nothing in the handler's frames, which are mostly ours, explains a token more than the sentence does.
            refusal = self.stopped_by.with_traceback(None)
            raise ConsumerStopped(f"The consumer of {self.topic} stopped: {refusal}") from refusal

    async def _drain(self, scope: Scope) -> None:
        """Let handlers finish, then cancel the rest; a second cancel ends the waiting."""
        try:
            await self._joined(scope, self._drain_s, "cancels what runs and gives the messages back")
        finally:
            await self._end_polls()  # lint: allow PK014 a few turns of the loop: they are cut
            for delivery in self._out:
                delivery.spare()
            scope.cancel()
            await self._joined(scope, _ABORT_S, "leaves what runs; the messages come again when their leases end")

    async def _joined(self, scope: Scope, seconds: float, after: str) -> None:
        try:
            async with timeout("consumer_drain", seconds):
                await scope.join()
        except Timeout:
            count = f"{len(scope)} handlers" if len(scope) > 1 else "a handler"
            line = (
                f"the consumer of {self.topic} stops while {count} did not end within {age_text(seconds)}: it {after}"
            )
            tell("consumer.cut", line, topic=self.topic, handlers=len(scope))

    def _is_over(self) -> bool:
        return self._stopped

    # --- places

    async def _take(self, places: int) -> list[Delivery]:
        if self._stopped:
            return []
        poll = _Poll(self._polling.start(self._source.poll(places), name=f"poll of {self.topic}"))
        self._reserved += places
        self._polls[poll] = None
        try:
            await poll.ended()
        except asyncio.CancelledError:
            poll.cut()
            await poll.ended()  # lint: allow PK014 a few turns of the loop: it was cut
            await self._source.hand_back(poll.left())  # lint: allow PK014 bounded inside
            raise
        finally:
            del self._polls[poll]
            self._reserved -= places
            self._freed.set()
        found = poll.brought()
        if self._is_over():
            await self._source.hand_back(found)
            return []
        for delivery in found:
            self._out[delivery] = None
            delivery.on_end(self._ended)
        return found

    def _ended(self, delivery: Delivery) -> None:
        self._out.pop(delivery, None)
        self._freed.set()

    async def _free_places(self) -> int:
        """Wait until places are free, and return how many. A delivery never begun frees its place when it lapses."""
        while True:
            lapse_s = self._next_lapse_s()
            free = self.concurrency - len(self._out) - self._reserved
            if free > 0 or self._stopped:
                return free
            self._freed.clear()
            try:
                async with timeout("consumer_place", lapse_s):
                    await self._freed.wait()
            except Timeout:
                deadline = current_deadline()
                if deadline is not None and deadline.expired(asyncio.get_running_loop().time()):
                    raise

    def _next_lapse_s(self) -> float:
        """Forget deliveries whose lease lapsed before they were begun, and return when the next one may lapse."""
        now = asyncio.get_running_loop().time()
        for delivery in [delivery for delivery in self._out if delivery.lapsed(now)]:
            self._out.pop(delivery)
        lease_s = self._source.visibility_ms / 1000
        return max(0.0, min((each.lapses_at - now for each in self._out if not each.begun), default=lease_s))


class _Poll:
    """A poll in a task of its own, so that it can be ended without losing what it just brought."""

    __slots__ = ("_task",)

    def __init__(self, task: asyncio.Task[list[Delivery]]) -> None:
        self._task = task

    def cut(self, turns: int = _TURNS) -> None:
        """End it soon. An answer that has come already is still read: a cancel at once would throw it away."""
        if turns:
            # lint: allow PK006 whoever waits for the poll joins it
            asyncio.get_running_loop().call_soon(self.cut, turns - 1)
        else:
            self._task.cancel()

    async def ended(self) -> None:
        """Wait until it has ended, by itself or cut."""
        await asyncio.wait({self._task})

    def brought(self) -> list[Delivery]:
        """Return what it brought, nothing if it was cut; what it failed by is raised."""
        return [] if self._task.cancelled() else self._task.result()

    def left(self) -> list[Delivery]:
        """Return what it brought for somebody who does not want it any more, nor what it failed by."""
        failed = self._task.cancelled() or self._task.exception() is not None
        return [] if failed else self._task.result()


def _not_yet(_delivery: Delivery) -> None:
    """Do nothing: the handler still runs, and its place is not free."""


def _hint_s(error: PenstockError) -> float:
    hint = error.facts.get("retry_after")
    return float(hint) if isinstance(hint, int | float) else 0.0
