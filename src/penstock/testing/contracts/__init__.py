"""Fakes of the contracts: whole services in RAM behind the same Protocols, with an injected clock.

memory_mailbox        the mailbox contract over `memory_mailbox_state`
memory_mailbox_state  the mailbox as a plain state machine
memory_passport       the passport contract over a `TokenBook`
memory_tokens         tokens as opaque handles, and the verifier that reads them
memory_storage        objects in a dict, bounded, verified on every read
"""

from __future__ import annotations

from penstock.testing.contracts.memory_mailbox import MemoryMailbox
from penstock.testing.contracts.memory_passport import MemoryPassport
from penstock.testing.contracts.memory_storage import MemoryStorage
from penstock.testing.contracts.memory_tokens import TokenBook

__all__ = ["MemoryMailbox", "MemoryPassport", "MemoryStorage", "TokenBook"]
