"""The Python SDK: a node's mailbox, passport and storage over HTTP, for programs outside the node.

Not to be taken for `penstock.clients`, which is how services inside a node reach each other by their contracts.

| to | use |
|---|---|
| find a node and its services | `connect`, `Client`, `Client.from_env`, `SdkOptions` |
| send, receive, settle, look | `MailboxClient`, `new_message` |
| work on messages | `Consumer`, `Delivery`, `Reject`, `LeaseLost` |
| issue, judge, narrow and revoke tokens | `PassportClient`, `narrow` |
| keep bytes under their address | `StorageClient` |
| do it all without asyncio | `penstock.client.sync` |

connecting    the client; whereabouts finds the node
calling       one service over HTTP: capability, deadline, retries; problems reads refusals
http_*        the contracts over it
mailbox, passport, storage   what users call
consumer, delivery, lease_keeper   taking messages, working on them, keeping their leases
sync, loop_thread   the same for threads
"""

from __future__ import annotations

from penstock.client.calling import SdkOptions
from penstock.client.connecting import Client, connect
from penstock.client.consumer import Consumer
from penstock.client.delivery import Delivery
from penstock.client.errors import ClientClosed, LeaseLost, NoNode, NoService, Reject
from penstock.client.mailbox import MailboxClient, new_message
from penstock.client.passport import PassportClient, narrow
from penstock.client.storage import StorageClient

__all__ = [
    "Client",
    "ClientClosed",
    "Consumer",
    "Delivery",
    "LeaseLost",
    "MailboxClient",
    "NoNode",
    "NoService",
    "PassportClient",
    "Reject",
    "SdkOptions",
    "StorageClient",
    "connect",
    "narrow",
    "new_message",
]
