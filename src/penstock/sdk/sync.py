"""The SDK without asyncio: the same methods, blocking, callable from any thread.

    with penstock.client.sync.connect() as client:
        client.mailbox.send("orders", "hello")
        for delivery in client.mailbox.consume("orders"):
            with delivery:
                handle(delivery.payload)

A lease is renewed by the client's own thread while the block runs. A blocking handler cannot be interrupted: a lost
lease is seen in `delivery.lost`, and comes out of the block as `LeaseLost`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, NoReturn, ParamSpec, Self, TypeVar

from penstock.contracts import mailbox as m
from penstock.contracts.passport import IssuedToken
from penstock.contracts.storage import Stored
from penstock.kernel.errors import Canceled, PenstockError
from penstock.kernel.inventory import Inventory
from penstock.kernel.lock import HIERARCHY, Lock
from penstock.kernel.metrics import Metrics
from penstock.sdk.calling import SdkOptions
from penstock.sdk.connecting import Client, place_of
from penstock.sdk.consumer import Consumer
from penstock.sdk.delivery import Delivery
from penstock.sdk.dht import DhtClient
from penstock.sdk.errors import LeaseLost
from penstock.sdk.finding import Whereabouts, find
from penstock.sdk.handlers import check_outcome, check_plain_handler
from penstock.sdk.interop import InteropClient
from penstock.sdk.loop_thread import LoopThread, Work
from penstock.sdk.mailbox import MailboxClient, checked_limit
from penstock.sdk.passport import PassportClient
from penstock.sdk.remote_place import NodePlace
from penstock.sdk.stop_signals import stopping_on_signals
from penstock.sdk.storage import StorageClient
from penstock.sdk.sync_streams import STREAM_S_MAX, SyncStream, SyncStreaming, upload
from penstock.sdk.telling.message_ends import is_not_of_the_message

__all__ = [
    "SyncClient",
    "SyncConsumer",
    "SyncDelivery",
    "SyncDht",
    "SyncInterop",
    "SyncMailbox",
    "SyncPassport",
    "SyncStorage",
    "SyncStream",
    "connect",
]

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

# Every call has its own deadline; this is only for a loop that does not run at all.
_CALL_S_MAX: Final = 120.0


class SyncService(Generic[S]):
    """One service, blocking."""

    def __init__(self, thread: LoopThread, service: S) -> None:
        """Have `thread` do the calls of `service`."""
        self._thread = thread
        self._service = service

    def _call(self, work: Work[R]) -> R:
        return self._thread.call(work, _CALL_S_MAX)


def blocking(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[SyncService[S], P], R]:
    """Make the blocking twin of an async method: same name, arguments, result and errors."""

    def call(face: SyncService[S], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return face._call(lambda: method(face._service, *args, **kwargs))  # noqa: SLF001 - a method of the face

    # The twin shows the parameters of the method, to `help` and to editors.
    return wraps(method)(call)


class SyncMailbox(SyncService[MailboxClient]):
    """`MailboxClient`, blocking."""

    send = blocking(MailboxClient.send)
    send_batch = blocking(MailboxClient.send_batch)
    recv = blocking(MailboxClient.recv)
    ack = blocking(MailboxClient.ack)
    nack = blocking(MailboxClient.nack)
    extend = blocking(MailboxClient.extend)
    ack_batch = blocking(MailboxClient.ack_batch)
    topics = blocking(MailboxClient.topics)
    topics_page = blocking(MailboxClient.topics_page)
    topic = blocking(MailboxClient.topic)
    peek = blocking(MailboxClient.peek)
    peek_page = blocking(MailboxClient.peek_page)
    peek_one = blocking(MailboxClient.peek_one)
    purge = blocking(MailboxClient.purge)
    dlq = blocking(MailboxClient.dlq)
    reprocess = blocking(MailboxClient.reprocess)
    settings = blocking(MailboxClient.settings)
    put_settings = blocking(MailboxClient.put_settings)
    delete_settings = blocking(MailboxClient.delete_settings)
    delete_topic = blocking(MailboxClient.delete_topic)
    delete_dead = blocking(MailboxClient.delete_dead)

    def peek_all(
        self, topic: str, state: m.State = "ready", *, limit: int | None = None, payload: bool = False
    ) -> Iterator[m.Peeked]:
        """Iterate over the messages of a state, or the first `limit` of them, page after page, and lease none."""
        left, cursor = checked_limit(limit), None
        while True:
            most = m.BATCH_MAX if left is None else min(left, m.BATCH_MAX)
            page = self.peek_page(topic, state, limit=most, payload=payload, cursor=cursor)
            yield from page.messages
            cursor = page.cursor
            left = None if left is None else left - len(page.messages)
            if cursor is None or left == 0:
                return

    def dead_letters(self, topic: str | None = None, *, reason: str | None = None) -> Iterator[m.DeadLetter]:
        """Iterate over all dead letters, page after page; `reason` is a whole one or a kind, as in `dlq`."""
        page = self.dlq(topic, reason=reason)
        yield from page.entries
        while page.cursor is not None:
            page = self.dlq(topic, reason=reason, cursor=page.cursor)
            yield from page.entries

    def lease(
        self,
        topic: str,
        *,
        max_messages: int = 1,
        visibility_ms: int | None = None,
        wait_ms: int = 0,
        max_bytes: int | None = None,
    ) -> list[SyncDelivery]:
        """Lease messages whose leases are renewed from now on, until each is acked or nacked."""
        taken = self._call(
            lambda: self._service.lease(
                topic, max_messages=max_messages, visibility_ms=visibility_ms, wait_ms=wait_ms, max_bytes=max_bytes
            )
        )
        return [SyncDelivery(self._thread, delivery) for delivery in taken]

    def consume(
        self, topic: str, *, concurrency: int = 1, visibility_ms: int = 30_000, wait_ms: int = 20_000
    ) -> SyncConsumer:
        """Iterate over deliveries; several threads may share the consumer, `concurrency` bounds them together."""

        async def make() -> Consumer:  # noqa: RUF029 - made on the loop it will live on
            return self._service.consume(
                topic, concurrency=concurrency, visibility_ms=visibility_ms, wait_ms=wait_ms, on_lost="tell"
            )

        return SyncConsumer(self._thread, self._call(make))

    def run(  # noqa: PLR0913 - the options of a consumer, each by its name
        self,
        topic: str,
        handler: Callable[[SyncDelivery], object],
        *,
        concurrency: int = 1,
        visibility_ms: int = 30_000,
        wait_ms: int = 20_000,
        stop_on_signals: bool = False,
    ) -> None:
        """Have `handler` work on messages in `concurrency` threads until Ctrl-C; then finish what they hold.

        With `stop_on_signals`, SIGTERM and Ctrl-C end it in the same way, and it returns.
        """
        consumer = self.consume(topic, concurrency=concurrency, visibility_ms=visibility_ms, wait_ms=wait_ms)
        consumer.run(handler, stop_on_signals=stop_on_signals)


class SyncPassport(SyncService[PassportClient]):
    """`PassportClient`, blocking."""

    issue = blocking(PassportClient.issue)
    worker_token = blocking(PassportClient.worker_token)
    producer_token = blocking(PassportClient.producer_token)
    verify = blocking(PassportClient.verify)
    verify_batch = blocking(PassportClient.verify_batch)
    revoke = blocking(PassportClient.revoke)
    issued_page = blocking(PassportClient.issued_page)
    rotate = blocking(PassportClient.rotate)
    keys = blocking(PassportClient.keys)
    revocations = blocking(PassportClient.revocations)

    def issued(self, *, include_ended: bool = False) -> Iterator[IssuedToken]:
        """Iterate over what was issued and is still good, newest first; with `include_ended` over all of it."""
        page = self.issued_page(include_ended=include_ended)
        yield from page.tokens
        while page.cursor is not None:
            page = self.issued_page(include_ended=include_ended, cursor=page.cursor)
            yield from page.tokens


class SyncStorage(SyncService[StorageClient]):
    """`StorageClient`, blocking."""

    put = blocking(StorageClient.put)
    get = blocking(StorageClient.get)
    head = blocking(StorageClient.head)

    def put_stream(self, pieces: Iterable[bytes], *, size: int | None = None, expect: str | None = None) -> Stored:
        """Store bytes that come in pieces. It is never retried. With `expect`, only if that is their address."""
        store = self._service.put_stream
        return upload(self._thread, lambda feed: store(feed, size=size, expect=expect), pieces, STREAM_S_MAX)

    def open(self, address: str, *, offset: int = 0, length: int | None = None) -> SyncStreaming:
        """Read as it comes: `with storage.open(address) as pieces: for piece in pieces`."""
        return SyncStreaming(self._thread, self._service.open(address, offset=offset, length=length))


class SyncDht(SyncService[DhtClient]):
    """`DhtClient`, blocking."""

    provide = blocking(DhtClient.provide)
    withdraw = blocking(DhtClient.withdraw)
    find = blocking(DhtClient.find)
    nodes = blocking(DhtClient.nodes)
    status = blocking(DhtClient.status)
    table = blocking(DhtClient.table)
    records = blocking(DhtClient.records)
    ping = blocking(DhtClient.ping)


class SyncInterop(SyncService[InteropClient]):
    """`InteropClient`, blocking."""

    endpoints = blocking(InteropClient.endpoints)
    deliveries = blocking(InteropClient.deliveries)
    delivery = blocking(InteropClient.delivery)
    replay = blocking(InteropClient.replay)
    pause = blocking(InteropClient.pause)
    resume = blocking(InteropClient.resume)
    get = blocking(InteropClient.get)

    def put(self, data: bytes | Iterable[bytes], *, expect: str | None = None) -> str:
        """Store bytes, whole or in pieces; returns their address. With `expect`, only if that is their address."""
        store = self._service.put
        if isinstance(data, bytes):
            return self._call(lambda: store(data, expect=expect))
        return upload(self._thread, lambda feed: store(feed, expect=expect), data, STREAM_S_MAX)


class SyncDelivery:
    """A leased message, blocking: `with delivery:` is the time the handler runs."""

    def __init__(self, thread: LoopThread, delivery: Delivery) -> None:
        """Wrap a delivery that lives on the client's loop."""
        self._thread = thread
        self._delivery = delivery
        self.envelope, self.visibility_ms = delivery.envelope, delivery.visibility_ms
        self.msg_id, self.receipt = delivery.msg_id, delivery.receipt
        self.payload, self.topic, self.key = delivery.payload, delivery.topic, delivery.key
        self.attrs, self.attempt = delivery.attrs, delivery.attempt

    def text(self) -> str:
        """Return the payload as text; `ValueError` when it is not UTF-8."""
        return self.envelope.text()

    def json(self) -> Any:  # noqa: ANN401 - whatever was sent
        """Return the payload as the JSON value it is; `ValueError` when it is none."""
        return self.envelope.json()

    @property
    def settled(self) -> bool:
        """Tell whether the message is settled or its lease lost."""
        return self._delivery.settled

    @property
    def begun(self) -> bool:
        """Tell whether somebody works on it, or did."""
        return self._delivery.begun

    @property
    def given_back(self) -> m.Nacked | None:
        """Return what the mailbox said when the message was given back."""
        return self._delivery.given_back

    @property
    def unsettled(self) -> PenstockError | None:
        """Return why it could not be acked or given back."""
        return self._delivery.unsettled

    @property
    def lost(self) -> LeaseLost | None:
        """Return why the lease is gone, if it is."""
        return self._delivery.lost

    def ack(self) -> None:
        """Acknowledge the message."""
        self._thread.call(self._delivery.ack, _CALL_S_MAX)

    def nack(self, reason: str | None = None, *, delay_ms: int | None = None, final: bool = False) -> None:
        """Give the message back, or with `final` make it a dead letter at once."""
        self._thread.call(lambda: self._delivery.nack(reason, delay_ms=delay_ms, final=final), _CALL_S_MAX)

    async def __aenter__(self) -> NoReturn:
        """Say how the blocking delivery is used."""
        raise TypeError("this delivery is of the blocking client: write `with delivery`")

    async def __aexit__(self, *_exc: object) -> None:
        """Be there, so that `async with` gets as far as `__aenter__`."""

    def __enter__(self) -> Self:
        """Begin to work: from now on the lease is renewed."""
        self._thread.call(self._delivery.__aenter__, _CALL_S_MAX)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        """Settle by how the block ended."""
        return self._thread.call(lambda: self._delivery.__aexit__(kind, error, traceback), _CALL_S_MAX)


class SyncConsumer:
    """An endless iterator over deliveries, for one thread or several."""

    def __init__(self, thread: LoopThread, consumer: Consumer) -> None:
        """Wrap a consumer that lives on the client's loop."""
        self._thread = thread
        self._consumer = consumer
        self.topic, self.concurrency = consumer.topic, consumer.concurrency
        self._stopped = threading.Event()
        self._counting = Lock("handler_failures", HIERARCHY["counters"])
        # Threads that work on messages, and whether there are none.
        self._working = 0
        self._idle = threading.Event()
        self._idle.set()

    def stop(self) -> None:
        """End the iteration in every thread, at once."""
        self._stopped.set()
        self._thread.soon(self._consumer.stop)

    def __aiter__(self) -> NoReturn:
        """Say how the blocking consumer is used."""
        raise TypeError("this consumer is of the blocking client: write `for delivery in consumer`")

    def __iter__(self) -> Iterator[SyncDelivery]:
        """Take deliveries until stopped."""
        while not self._stopped.is_set():
            found = self.next()
            if found is not None:
                yield found

    def next(self) -> SyncDelivery | None:
        """Wait for a free place and poll once; None when nothing came."""
        found = self._poll()
        return None if found is None else SyncDelivery(self._thread, found)

    @property
    def stopped_by(self) -> BaseException | None:
        """Return the refusal that ended the consumer, if one did."""
        return self._consumer.stopped_by

    def _poll(self) -> Delivery | None:
        try:
            return self._thread.call(self._consumer.next, _CALL_S_MAX)
        except Canceled:
            if not self._stopped.is_set():
                raise
            return None

    def run(self, handler: Callable[[SyncDelivery], object], *, stop_on_signals: bool = False) -> None:
        """Work in `concurrency` threads until stopped, or until Ctrl-C; what is being worked on is finished.

        An async handler is a `TypeError`. With `stop_on_signals`, SIGTERM and Ctrl-C stop the consumer, and `run`
        returns.
        """
        check_plain_handler(handler)
        with stopping_on_signals(self.stop, wanted=stop_on_signals):
            self._run(handler)

    def _run(self, handler: Callable[[SyncDelivery], object]) -> None:
        places = self.concurrency
        # lint: allow PK007 handlers block, so they need threads; `concurrency` bounds them and the block joins them
        with ThreadPoolExecutor(places, thread_name_prefix=f"handler-{self.topic}") as threads:
            # From the first thread on, whatever comes, Ctrl-C too, must stop them: leaving the block waits for all.
            # But for one whose start Ctrl-C interrupted: the pool does not know it, so its work is waited for here.
            try:
                workers = [threads.submit(self._work, handler) for _ in range(places)]
                wait(workers, return_when=FIRST_EXCEPTION)
            finally:
                self.stop()
                self._idle.wait()
        for worker in workers:
            worker.result()
        self._consumer.check_stopped()

    def _work(self, handler: Callable[[SyncDelivery], object]) -> None:
        self._count_working(1)
        try:
            self._work_on(handler)
        finally:
            self._count_working(-1)

    def _count_working(self, more: int) -> None:
        with self._counting:
            self._working += more
            if self._working:
                self._idle.clear()
            else:
                self._idle.set()

    def _work_on(self, handler: Callable[[SyncDelivery], object]) -> None:
        for delivery in self:
            try:
                with delivery:
                    self._handled(delivery, handler)
            except Exception as error:  # noqa: BLE001  # lint: allow PK015 a handler that fails is nacked
                with self._counting:
                    self._consumer.failed(delivery, error)
                if self._consumer.stopped_by is not None:
                    self.stop()

    def _handled(self, delivery: SyncDelivery, handler: Callable[[SyncDelivery], object]) -> None:
        try:
            check_outcome(handler(delivery))
        except Exception as failed:
            if is_not_of_the_message(failed):
                self._end_by(failed)
            raise

    def _end_by(self, error: Exception) -> None:
        """Let no poll take again what is given back for an error that would meet every message."""
        with suppress(PenstockError):
            self._thread.call(lambda: self._consumer.end_by(error), _CALL_S_MAX)
        if self._consumer.stopped_by is not None:
            self._stopped.set()


class SyncClient:
    """A node's services, blocking: `mailbox`, `passport`, `storage`, `dht`, `interop`. Use `with`, or close it."""

    def __init__(self, place: NodePlace, options: SdkOptions | None = None) -> None:
        """Start the client's thread; nothing is dialled before the first call."""
        self._thread = LoopThread("penstock-client", Metrics("client_thread"))

        async def make() -> Client:  # noqa: RUF029 - made on the loop it will live on
            client = Client(place, options)
            self._thread.at_end = client.close
            return client

        try:
            self._client = self._thread.call(make, _CALL_S_MAX)
        except BaseException:
            self._thread.close()
            raise
        self.place: NodePlace = place
        self.inventory: Inventory = self._client.inventory
        self.mailbox = SyncMailbox(self._thread, self._client.mailbox)
        self.passport = SyncPassport(self._thread, self._client.passport)
        self.storage = SyncStorage(self._thread, self._client.storage)
        self.dht = SyncDht(self._thread, self._client.dht)
        self.interop = SyncInterop(self._thread, self._client.interop)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, *, options: SdkOptions | None = None) -> Self:
        """Find the node by the environment, else in `./.penstock`; see `finding`."""
        return cls(find(Whereabouts(tls=None if options is None else options.tls), environ), options)

    @property
    def is_closed(self) -> bool:
        """Tell whether the client was closed."""
        return self._thread.is_closed

    def close(self) -> None:
        """End what runs, close the connections and end the thread. From any thread, and as often as you like."""
        self._thread.close()

    async def __aenter__(self) -> NoReturn:
        """Say how the blocking client is used."""
        raise TypeError("write `with connect_sync(...)`, or with asyncio `async with connect(...)`")

    async def __aexit__(self, *_exc: object) -> None:
        """Be there, so that `async with` gets as far as `__aenter__`."""

    def __enter__(self) -> Self:
        """Hand out the open client."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """Close at the end of the block."""
        self.close()


def connect(  # noqa: PLR0913 - where the node is and as whom, each by its name
    where: Path | str | None = None,
    *,
    token: str | Callable[[], str] | None = None,
    token_file: Path | str | None = None,
    ca: Path | str | None = None,
    ports: Mapping[str, int] | None = None,
    options: SdkOptions | None = None,
) -> SyncClient:
    """Make a blocking client of the node at a URL or in a data directory; use it by `with`."""
    place = place_of(where, token=token, token_file=token_file, ca=ca, ports=ports, options=options)
    return SyncClient(place, options)
