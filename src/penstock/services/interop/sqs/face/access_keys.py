"""Access keys: an id, a secret, and what its holder may do on which topics; pure."""

from __future__ import annotations

import base64
from typing import Final

import msgspec

OPS: Final = ("send", "recv", "ack", "nack", "admin")
# A tenant's name, or nothing; the space of subjects is not open to tenants.
TENANT: Final = r"^(?!sub:)[!-~]*$"
ALL_QUEUES: Final = ("sqs/",)
DEFAULT_NAME: Final = "default"
ID_BYTES: Final = 10
SECRET_BYTES: Final = 30


class AccessKey(msgspec.Struct, frozen=True, kw_only=True):
    """One key. It maps to a grant: which operations of the mailbox, on topics with one of these beginnings."""

    id: str
    secret: str
    name: str = ""
    # Whose share of the mailbox counts what is sent with it; empty for that of svc-interop.
    tenant: str = ""
    ops: tuple[str, ...] = OPS
    topics: tuple[str, ...] = ALL_QUEUES
    made_at: int = 0

    def __repr__(self) -> str:
        """Show nothing that signs."""
        return f"AccessKey({self.id}, {self.name!r})"

    def allows(self, op: str, topic: str) -> bool:
        """Tell whether its holder may do this on that topic."""
        return op in self.ops and topic.startswith(self.topics)


def key_id_of(random: bytes) -> str:
    """Write the id of a new key: letters and digits that AWS clients take."""
    return "PSK" + base64.b32encode(random).decode("ascii").rstrip("=")


def secret_of(random: bytes) -> str:
    """Write the secret of a new key."""
    return base64.b64encode(random).decode("ascii")
