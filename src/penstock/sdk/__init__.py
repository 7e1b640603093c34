"""The Python SDK: a node's services over HTTP. Programs import it as `penstock.client`.

| to | use |
|---|---|
| find a node and its services | `connect`, `Client`, `Client.from_env`, `SdkOptions` |
| send, receive, settle, look | `MailboxClient`, `new_message`, `TopicSettings` |
| work on messages | `Consumer`, `Delivery`, `Reject`, `LeaseLost`, `ConsumerStopped` |
| issue, verify, narrow and revoke tokens | `PassportClient`, `narrow` |
| store and fetch objects by content address | `StorageClient` |
| find who provides a key | `DhtClient` |
| look at webhooks, replay them | `InteropClient` |
| do it all without asyncio | `connect_sync`, `penstock.client.sync` |
| catch what goes wrong | `PenstockError`, and a class below it for each condition; all are here |

connecting     the client of a node
finding        finds a node: by what was said, by the environment, by its data directory
contexts       named nodes of a user
remote_place   a node that is known by its URL
discovery      a node that is known by its data directory
token_source   where a token comes from: a text, a file that may change, a function
token_text     a token as it was given, without the white space around it
reach_hints    what to do when a node cannot be spoken to
first_contact  whether a node that never answered is worth waiting for
calling        one service over HTTP: capability, deadline, retries
problems       problem details back into errors
errors         what only a client can say: no node, lease lost, message rejected
http_mailbox   the mailbox contract over HTTP
joining/       how calls that are under way together are made by one request
http_passport  the passport contract over HTTP
mailbox        what users call: send, receive, settle, consume
passport       what users call: issue, verify, revoke, narrow
storage        what users call: put, get
dht            what users call: provide, withdraw, find
interop        what users call: webhook endpoints and deliveries, replay; put, get
webhook_forwarding  passes webhooks on to a program nearby
values         contract values from what a caller wrote
consumer       takes messages as places are free and runs a handler for each
handlers       which handlers a consumer can run
stop_signals   stops a consumer on SIGTERM and Ctrl-C
telling/       what a worker says to a person, in one plain line each
delivery       one leased message in the hands of a handler
lease_keeper   extends the leases of messages that are being worked on
sync           the same methods, blocking
sync_streams   objects in pieces, blocking
loop_thread    the loop behind `sync`, on a thread of its own
"""

from __future__ import annotations

from penstock.contracts.mailbox import TopicSettings
from penstock.kernel.errors import (
    Backpressure,
    BadOrigin,
    Busy,
    Canceled,
    Conflict,
    DownstreamUnavailable,
    Expired,
    Forbidden,
    Integrity,
    Internal,
    Malformed,
    NotFound,
    NotReady,
    OverLimit,
    PenstockError,
    PolicyBlocked,
    RateLimited,
    Timeout,
    Unauthenticated,
    Unsupported,
)
from penstock.net.calls.answer import AnswerTooLarge
from penstock.sdk.calling import SdkOptions
from penstock.sdk.connecting import Client, connect
from penstock.sdk.consumer import Consumer
from penstock.sdk.delivery import Delivery
from penstock.sdk.dht import DhtClient
from penstock.sdk.errors import (
    ClientClosed,
    ConsumerStopped,
    LeaseLost,
    NoNode,
    NoService,
    NoToken,
    Reject,
)
from penstock.sdk.interop import InteropClient
from penstock.sdk.mailbox import MailboxClient, new_message
from penstock.sdk.passport import PassportClient, narrow
from penstock.sdk.storage import StorageClient
from penstock.sdk.sync import connect as connect_sync

__all__ = [
    "AnswerTooLarge",
    "Backpressure",
    "BadOrigin",
    "Busy",
    "Canceled",
    "Client",
    "ClientClosed",
    "Conflict",
    "Consumer",
    "ConsumerStopped",
    "Delivery",
    "DhtClient",
    "DownstreamUnavailable",
    "Expired",
    "Forbidden",
    "Integrity",
    "Internal",
    "InteropClient",
    "LeaseLost",
    "MailboxClient",
    "Malformed",
    "NoNode",
    "NoService",
    "NoToken",
    "NotFound",
    "NotReady",
    "OverLimit",
    "PassportClient",
    "PenstockError",
    "PolicyBlocked",
    "RateLimited",
    "Reject",
    "SdkOptions",
    "StorageClient",
    "Timeout",
    "TopicSettings",
    "Unauthenticated",
    "Unsupported",
    "connect",
    "connect_sync",
    "narrow",
    "new_message",
]
