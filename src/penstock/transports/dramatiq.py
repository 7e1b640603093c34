"""A Dramatiq broker on penstock.

    import dramatiq
    from penstock.transports.dramatiq import PenstockBroker
    dramatiq.set_broker(PenstockBroker())

A queue is a topic, a delay of up to 12 hours is the mailbox's own. A message that a worker holds is leased, and the
lease is renewed until it is settled. A message that Dramatiq gives up on goes to the topic of its queue with `.XQ` at
the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from dramatiq.broker import Broker, Consumer, MessageProxy
from dramatiq.common import current_millis, dq_name, xq_name
from dramatiq.errors import QueueJoinTimeout, QueueNotFound
from dramatiq.message import Message

from penstock.kernel.errors import NotFound
from penstock.sdk.sync import SyncDelivery, connect
from penstock.transports.leases import LEASE_MS, HeldMessages, ProcessClient
from penstock.transports.topics import topic_of

PREFIX: Final = "dramatiq/"
_DELAY_MS_MAX: Final = 12 * 60 * 60 * 1000
_JOIN_LOOK_S: Final = 0.05


class PenstockBroker(Broker):
    """Sends and consumes actors' messages through a node's mailbox."""

    def __init__(
        self,
        data_dir: Path | str | None = None,
        *,
        token: str | None = None,
        middleware: list[Any] | None = None,
        topic_prefix: str = PREFIX,
        lease_s: float = LEASE_MS / 1000,
    ) -> None:
        """Find the node as the command line does, or in `data_dir`."""
        super().__init__(middleware=middleware)
        self.queues: set[str] = set()
        self._prefix = topic_prefix
        self._lease_ms = int(lease_s * 1000)
        self._client = ProcessClient(lambda: connect(data_dir, token=token))

    def topic(self, queue_name: str) -> str:
        """Return the topic of a queue."""
        return topic_of(self._prefix, queue_name)

    def close(self) -> None:
        """Let the client go."""
        self._client.close()

    # --- queues -------------------------------------------------------------------------------------------------------

    def declare_queue(self, queue_name: str) -> None:
        """Name a queue; topics need no making."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues.add(queue_name)
            self.emit_after("declare_queue", queue_name)

    def get_declared_queues(self) -> set[str]:
        """Return the queues by name."""
        return set(self.queues)

    def get_declared_delay_queues(self) -> set[str]:
        """Return nothing: delays are the mailbox's own."""
        return set()

    def flush(self, queue_name: str) -> None:
        """Remove what waits in a queue."""
        for name in (queue_name, dq_name(queue_name), xq_name(queue_name)):
            self._client.get().mailbox.purge(self.topic(name))

    def flush_all(self) -> None:
        """Remove what waits in every declared queue."""
        for queue_name in self.queues:
            self.flush(queue_name)

    def join(self, queue_name: str, *, timeout: int | None = None) -> None:
        """Wait until a queue is empty: nothing waits, is delayed or is being worked on."""
        import threading  # noqa: PLC0415 - only here

        due = None if timeout is None else current_millis() + timeout
        while self._unsettled(queue_name):
            if due is not None and current_millis() >= due:
                raise QueueJoinTimeout(queue_name)
            threading.Event().wait(_JOIN_LOOK_S)

    def _unsettled(self, queue_name: str) -> int:
        try:
            stats = self._client.get().mailbox.topic(self.topic(queue_name))
        except NotFound:
            return 0
        return int(stats.ready + stats.inflight + stats.delayed)

    # --- messages -----------------------------------------------------------------------------------------------------

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        """Send a message, `delay` milliseconds from now; beyond 12 hours it is sent on when it arrives early."""
        if message.queue_name not in self.queues:
            raise QueueNotFound(message.queue_name)
        if delay is not None:
            message = message.copy(options={"eta": current_millis() + delay})
        self.emit_before("enqueue", message, delay)
        self.send(message)
        self.emit_after("enqueue", message, delay)
        return message

    def send(self, message: Message[Any]) -> None:
        """Store a message, delayed until its `eta`."""
        left_ms = max(0, _eta(message) - current_millis())
        topic = self.topic(message.queue_name)
        self._client.get().mailbox.send(topic, message.encode(), delay_ms=min(left_ms, _DELAY_MS_MAX))

    def give_up(self, message: MessageProxy) -> None:
        """Store a message that failed for good beside its queue."""
        self._client.get().mailbox.send(self.topic(xq_name(message.queue_name)), message.encode())

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 30_000) -> Consumer:
        """Take messages of a queue; `timeout` is how long one look waits for them."""
        return PenstockConsumer(self, queue_name, HeldMessages(self._client, self._lease_ms), prefetch, timeout)


class PenstockConsumer(Consumer):
    """An iterator over one queue: a message, or None when none came in time."""

    def __init__(
        self, broker: PenstockBroker, queue_name: str, held: HeldMessages, prefetch: int, timeout: int
    ) -> None:
        """Hold at most `prefetch` messages."""
        self._broker = broker
        self._topic = broker.topic(queue_name)
        self._held = held
        self._prefetch = max(1, prefetch)
        self._wait_ms = min(max(0, timeout), 20_000)
        self._ready: list[SyncDelivery] = []

    def __next__(self) -> MessageProxy | None:
        """Return the next message, or None."""
        if not self._ready:
            room = self._prefetch - len(self._held)
            if room <= 0:
                import threading  # noqa: PLC0415 - only here

                threading.Event().wait(min(self._wait_ms, 100) / 1000)
                return None
            self._ready = self._held.take(self._topic, most=room, wait_ms=self._wait_ms)
        if not self._ready:
            return None
        delivery = self._ready.pop(0)
        message = Message.decode(delivery.payload)
        self._held.hold(delivery.msg_id, delivery)
        if _eta(message) > current_millis() + 1000:
            # Delayed for longer than the mailbox delays: it is sent on for the rest.
            self._broker.send(message)
            self._held.ack(delivery.msg_id)
            return None
        return _HeldMessage(message, delivery.msg_id)

    def ack(self, message: MessageProxy) -> None:
        """Settle a message for good."""
        self._held.ack(_tag(message))

    def nack(self, message: MessageProxy) -> None:
        """Put a message that failed for good beside its queue, and settle it."""
        self._broker.give_up(message)
        self._held.ack(_tag(message))

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        """Give messages back that were not worked on."""
        for message in messages:
            self._held.give_back(_tag(message))

    def close(self) -> None:
        """Give everything back that is held."""
        for delivery in self._ready:
            self._held.hold(delivery.msg_id, delivery)
        self._ready = []
        self._held.give_all_back()


class _HeldMessage(MessageProxy):
    """A message with the tag it is held under."""

    def __init__(self, message: Message[Any], tag: str) -> None:
        super().__init__(message)
        self._tag = tag


def _eta(message: Message[Any]) -> int:
    """Return when a message is due, in milliseconds; one whose `eta` is no number is due now, as in Dramatiq itself."""
    eta = message.options.get("eta")
    return int(eta) if isinstance(eta, int | float) else 0


def _tag(message: MessageProxy) -> str:
    return str(getattr(message, "_tag", ""))
