"""Names of queues as topics: what a topic cannot hold is written as `:` and its code. Pure."""

from __future__ import annotations

import re
from typing import Final

_OTHER: Final = re.compile(r"[^A-Za-z0-9._-]")
_CHARS_MAX: Final = 200


def topic_of(prefix: str, queue: str) -> str:
    """Return the topic of a queue; two names never share one."""
    topic = prefix + _OTHER.sub(lambda found: "".join(f":{byte:02x}" for byte in found[0].encode("utf-8")), queue)
    if len(topic) > _CHARS_MAX:
        raise ValueError(f"the queue name {queue[:40]!r} is too long: with its prefix a topic has {_CHARS_MAX} letters")
    return topic
