"""Which topic a name was meant for, where there is none of that name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.sdk import Client


async def meant(client: Client, topic: str) -> str:
    """Return `did you mean ...?` with the topic whose name is near; empty where none is, or none may be seen."""
    from penstock.kernel.errors import PenstockError
    from penstock.wire.plain_words import near_word

    try:
        known = [stats.topic for stats in await client.mailbox.topics()]
    except PenstockError:
        return ""
    near = near_word(topic, known)
    return f"did you mean {near}?" if near and near != topic else ""
