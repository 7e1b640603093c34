"""Contracts over OAP/1 and HTTP: how one service reaches another. Programs outside use `penstock.client`.

oap              any contract as an OAP/1 stub (the caller's side) or service (the answerer's side)
pool             one peer over as many connections as its calls need
remote           a service in another process: its address, and the connections to it
issuer           where a verifier's keys and revocations come from: a URL, a socket or a file
storage_streams  whole objects over the storage contract, piece by piece
"""

from __future__ import annotations

from penstock.rpc.oap import remote_mailbox, remote_passport, remote_storage, serve
from penstock.rpc.storage_streams import get_stream, put_stream

__all__ = ["get_stream", "put_stream", "remote_mailbox", "remote_passport", "remote_storage", "serve"]
