"""Contracts over the wire and in memory: how one service reaches another. Programs outside use `penstock.client`.

oap              any contract as an OAP/1 stub (caller's side) or service (answerer's side)
oap_pool         one peer over as many connections as its calls need
remote           a service in another process: where it is, and the connections to it
memory_mailbox   the mailbox in RAM, with its state machine in memory_mailbox_state
memory_passport  tokens as opaque handles, with the verifier that understands them in memory_tokens
memory_storage   objects in a dict
storage_streams  whole objects over the storage contract, piece by piece
"""

from __future__ import annotations

from penstock.clients.memory_mailbox import MemoryMailbox
from penstock.clients.memory_passport import MemoryPassport
from penstock.clients.memory_storage import MemoryStorage
from penstock.clients.memory_tokens import TokenBook
from penstock.clients.oap import remote_mailbox, remote_passport, remote_storage, serve
from penstock.clients.storage_streams import get_stream, put_stream

__all__ = [
    "MemoryMailbox",
    "MemoryPassport",
    "MemoryStorage",
    "TokenBook",
    "get_stream",
    "put_stream",
    "remote_mailbox",
    "remote_passport",
    "remote_storage",
    "serve",
]
