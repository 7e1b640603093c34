"""Celery and kombu on penstock: importing this module makes `penstock://` a broker URL.

    import penstock.transports.kombu
    app = Celery("tasks", broker="penstock://")

`penstock://` finds the node as the command line does (`PENSTOCK_DATA_DIR`, `PENSTOCK_TOKEN`, else `./.penstock`);
`penstock:///srv/app/.penstock` names its data directory. Transport options: `lease_s` (30), `wait_s` (0.2),
`topic_prefix` (`celery/`), `data_dir`, `token`.

A queue is a topic. A message that a worker holds is leased, and the lease is renewed until the task is acknowledged: a
task may run, or wait for its ETA, as long as it likes, and when its worker dies another one has it within `lease_s`.
"""

from __future__ import annotations

import json
from contextlib import suppress
from queue import Empty
from typing import Any, Final

from kombu.transport import TRANSPORT_ALIASES, virtual

from penstock.kernel.errors import DownstreamUnavailable, NotFound, PenstockError
from penstock.sdk.errors import NoNode
from penstock.sdk.sync import SyncClient, connect
from penstock.transports.leases import LEASE_MS, HeldMessages, ProcessClient
from penstock.transports.topics import topic_of

ALIAS: Final = "penstock"
PREFIX: Final = "celery/"
_WAIT_S: Final = 0.2
_PURGED_MAX: Final = 1 << 30


class KombuChannel(virtual.Channel):
    """One channel: queues are topics, deliveries are leases."""

    # Kombu would publish what is unacknowledged anew at the end; here it is given back instead.
    do_restore = False

    def __init__(self, connection: Any, **kwargs: Any) -> None:  # noqa: ANN401 - kombu's own types
        """Take the options of the connection."""
        super().__init__(connection, **kwargs)
        options = connection.client.transport_options
        self._prefix = options.get("topic_prefix", PREFIX)
        self._wait_ms = int(float(options.get("wait_s", _WAIT_S)) * 1000)
        self._client = ProcessClient(lambda: _connect(connection.client, options))
        self._messages = HeldMessages(self._client, int(float(options.get("lease_s", LEASE_MS / 1000)) * 1000))

    def _topic(self, queue: str) -> str:
        return topic_of(self._prefix, queue)

    # --- what kombu asks of a transport -------------------------------------------------------------------------------

    def _put(self, queue: str, message: dict[str, Any], **_kwargs: Any) -> None:  # noqa: ANN401 - kombu's own
        self._client.get().mailbox.send(self._topic(queue), json.dumps(message).encode("utf-8"))

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        taken = self._messages.take(self._topic(queue), wait_ms=self._wait_ms)
        if not taken:
            raise Empty
        (delivery,) = taken
        message: dict[str, Any] = json.loads(delivery.payload)
        message["properties"]["delivery_tag"] = delivery.msg_id
        message["properties"].setdefault("delivery_info", {})["redelivered"] = delivery.attempt > 1
        self._messages.hold(delivery.msg_id, delivery)
        return message

    def _size(self, queue: str) -> int:
        try:
            stats = self._client.get().mailbox.topic(self._topic(queue))
        except NotFound:
            return 0
        return int(stats.ready + stats.delayed)

    def _purge(self, queue: str) -> int:
        return min(self._client.get().mailbox.purge(self._topic(queue)), _PURGED_MAX)

    def _delete(self, queue: str, *_args: Any, **_kwargs: Any) -> None:  # noqa: ANN401 - kombu's own
        self._purge(queue)

    def _has_queue(self, queue: str, **_kwargs: Any) -> bool:  # noqa: ANN401 - kombu's own
        return True

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:  # noqa: FBT001, FBT002 - kombu's own
        """Settle a message for good."""
        self._messages.ack(delivery_tag)
        super().basic_ack(delivery_tag, multiple)

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:  # noqa: FBT001, FBT002 - kombu's own
        """Give a message back, or make it a dead letter."""
        if requeue:
            self._messages.give_back(delivery_tag)
        else:
            self._messages.end(delivery_tag)
        # Not kombu's own requeue: it would publish the message a second time.
        self.qos.ack(delivery_tag)

    def close(self) -> None:
        """Give back what is held, and let the client go."""
        if not self.closed:
            # Where the node is gone, the leases end by themselves.
            with suppress(PenstockError):
                self._messages.give_all_back()
            super().close()
            self._client.close()


class KombuTransport(virtual.Transport):
    """The transport behind `penstock://`."""

    Channel = KombuChannel
    can_parse_url = False
    # Between two polls that found nothing; each of them waits on the node already.
    polling_interval = 0.01
    default_port = None
    driver_type = ALIAS
    driver_name = ALIAS
    connection_errors = (*virtual.Transport.connection_errors, DownstreamUnavailable, NoNode)
    channel_errors = (*virtual.Transport.channel_errors, PenstockError)
    implements = virtual.Transport.implements.extend(
        asynchronous=False, exchange_type=frozenset(["direct", "topic"]), heartbeats=False
    )

    def establish_connection(self) -> Any:  # noqa: ANN401 - kombu's own types
        """Connect; where no node answers, say so now: kombu then tries again, or another of its addresses."""
        client = _connect(self.client, self.client.transport_options)
        try:
            client.mailbox.topic(self.client.transport_options.get("topic_prefix", PREFIX) + ALIAS)
        except self.connection_errors:
            raise
        except PenstockError:
            # Whatever it answers, a node is there; what this token may do is found out by doing it.
            pass
        finally:
            client.close()
        return super().establish_connection()

    @property
    def default_connection_params(self) -> dict[str, Any]:
        """Return nothing that a URL without a host would have to be completed by."""
        return {"hostname": None, "port": None}

    def driver_version(self) -> str:
        """Return our version."""
        from penstock import __version__  # noqa: PLC0415 - only here

        return __version__


def _connect(client: Any, options: dict[str, Any]) -> SyncClient:  # noqa: ANN401 - kombu's connection
    named = client.virtual_host if client.virtual_host not in (None, "", "/") else None
    data_dir = options.get("data_dir") or (named if named is None or named.startswith("/") else f"/{named}")
    token = options.get("token")
    return connect(data_dir, token=client.password or None if token is None else token)


TRANSPORT_ALIASES[ALIAS] = "penstock.transports.kombu:KombuTransport"
