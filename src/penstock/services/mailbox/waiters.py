"""Receivers that wait for messages of a topic; each is served by the first shard that has something for it.

A *patient* receiver gave a `wait_ms` and is answered empty when it is over, or when the listener that it came through
drains. One that is not patient asked without waiting, but a read or an end of lease of its topic was under way: it
hears as soon as nothing of the topic is under way any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.contracts import mailbox as m
from penstock.kernel.errors import Busy, PenstockError
from penstock.services.mailbox.jobs import RecvJob
from penstock.services.mailbox.shards.topics import Topic


class Waiter:
    """One parked receiver."""

    __slots__ = ("forget", "job", "patient", "timer")

    def __init__(self, job: RecvJob, *, patient: bool) -> None:
        self.job = job
        self.patient = patient
        # What ends a patient one: its time, and a drain. Both are taken off when it leaves.
        self.timer: asyncio.TimerHandle | None = None
        self.forget: Callable[[], None] | None = None

    def leave(self) -> None:
        """Wait for nothing any more."""
        if self.timer is not None:
            self.timer.cancel()
        if self.forget is not None:
            self.forget()


class Waiters:
    """All parked receivers of the service. They stand in no channel; `waiters_max` bounds them."""

    def __init__(self, limit: int, on_idle: Callable[[Topic], None]) -> None:
        """Bound them; `on_idle` hears of topics that nobody waits for any more."""
        self.limit = limit
        self.count = 0
        # Those of them that are not patient; nearly always none.
        self.impatient = 0
        # Each of them, whatever its topic: there may be many more topics than receivers.
        self._parked: set[Waiter] = set()
        self._on_idle = on_idle

    def park(self, job: RecvJob, *, patient: bool) -> None:
        """Wait until a shard has something, or the job's patience ends. Busy when too many wait."""
        if self.count >= self.limit:
            raise Busy("Too many receivers are waiting.", limit="waiters")
        waiter = Waiter(job, patient=patient)
        self.count += 1
        self.impatient += not patient
        self._parked.add(waiter)
        job.topic.waiters.append(waiter)
        if patient:
            loop = asyncio.get_running_loop()
            waiter.timer = loop.call_later(
                job.wait_ms / 1000, self._end, waiter
            )  # lint: allow PK006 one a parked receiver, cancelled when it is served or gone
            if job.shutdown is not None:
                waiter.forget = job.shutdown.on_drain(lambda: self._end(waiter))
        job.promise.on_over = lambda: self._gone(waiter)

    def first(self, topic: Topic) -> Waiter | None:
        """Return the receiver that waits longest and still may; those that are gone or were revoked are taken out."""
        while topic.waiters:
            job = topic.waiters[0].job
            if not job.promise.done and not self._refuse_late(job):
                return topic.waiters[0]
            if topic.waiters and topic.waiters[0].job is job:
                self.claim(topic)
        return None

    def rejudge(self) -> None:
        """Refuse those whose capability is good no more; called about once a second."""
        for waiter in list(self._parked):
            self._refuse_late(waiter.job)

    def _refuse_late(self, job: RecvJob) -> bool:
        error = None if job.rejudge is None else job.rejudge()
        if error is None:
            return False
        job.fail(error)
        return True

    def claim(self, topic: Topic) -> None:
        """Take the first receiver out: the caller serves it."""
        waiter = topic.waiters.popleft()
        self._parked.discard(waiter)
        self.count -= 1
        self.impatient -= not waiter.patient
        waiter.job.promise.on_over = None
        waiter.leave()

    def _gone(self, waiter: Waiter) -> None:
        """Take a receiver out that was answered, or that nobody waits for any more."""
        waiter.leave()
        topic = waiter.job.topic
        if waiter in topic.waiters:
            topic.waiters.remove(waiter)
            self._parked.discard(waiter)
            self.count -= 1
            self.impatient -= not waiter.patient
            self._on_idle(topic)

    def _end(self, waiter: Waiter) -> None:
        if waiter in waiter.job.topic.waiters:
            waiter.job.deliver(m.Received(()))

    def settle(self, topic: Topic) -> None:
        """Answer the impatient ones empty, if nothing of the topic is under way."""
        if topic.pending:
            return
        for waiter in [waiter for waiter in topic.waiters if not waiter.patient]:
            waiter.job.deliver(m.Received(()))

    def refuse(self, topic: Topic, error: PenstockError) -> None:
        """Fail the impatient ones: what they waited for cannot be known."""
        for waiter in [waiter for waiter in topic.waiters if not waiter.patient]:
            waiter.job.fail(error)

    def end_all(self, topics: list[Topic]) -> None:
        """Answer everybody empty, because the service drains."""
        for topic in topics:
            for waiter in list(topic.waiters):
                waiter.job.deliver(m.Received(()))
