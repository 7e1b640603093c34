"""A large backlog in seconds: rows straight into an engine, as group commits would have written them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from blake3 import blake3

from penstock.services.mailbox.batch import Batch
from penstock.services.mailbox.ids import slot_of
from penstock.services.mailbox.rows import MessageRow

WALL_MS = 1_700_000_000_000
_SLICE = 4096


def prefill(engine, messages: Iterable[tuple[str, str | None]], payload: bytes = b"x" * 16) -> int:
    """Store a message for each (topic, key), in order; returns how many."""
    engine.open(0)
    digest, topics, slots, seq = blake3(payload).digest(), {}, {}, 0
    left = iter(messages)
    while chunk := list(islice(left, _SLICE)):
        batch = Batch()
        for name in chunk:
            seq += 1
            if name[0] not in topics:
                topics[name[0]] = len(topics) + 1
                batch.topics.append((topics[name[0]], name[0]))
            if name not in slots:
                slots[name] = slot_of(*name)
            batch.insert(
                MessageRow(
                    seq=seq, slot=slots[name], topic=topics[name[0]], key=name[1], ts=WALL_MS, expires=None, nonce=0,
                    corr_id="", idem_key=None, attrs={}, payload_hash=digest, payload=payload,
                )
            )  # fmt: skip
        engine.prepare(batch)
        engine.commit(batch)
    engine.close()
    return seq
