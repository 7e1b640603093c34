"""What the mailbox tells of its work to a tracer: the commit of a send, and deliveries linked to their senders."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from penstock.net.tracing import ATTRIBUTE, TRACER, now_ns, read_traceparent
from penstock.services.mailbox.jobs import SendRun

if TYPE_CHECKING:
    from penstock.contracts import mailbox as m
    from penstock.services.mailbox.batch import Batch
    from penstock.services.mailbox.rows import MessageRow


def with_sender(send: m.Send, corr_id: str) -> m.Send:
    """Write the sender's span into the message, unless its producer wrote one."""
    span = TRACER.current(corr_id)
    if span is None or ATTRIBUTE in send.attrs:
        return send
    return msgspec.structs.replace(send, attrs={**send.attrs, ATTRIBUTE: span.traceparent})


def tell_commit(batch: Batch, start_ns: int) -> None:
    """Tell of a commit that is done, once for each request that waited for it."""
    rows: list[MessageRow] = []
    for send in batch.stored:
        rows += send.rows if isinstance(send, SendRun) else (send.row,)
    for corr_id in dict.fromkeys(row.corr_id for row in rows):
        span = TRACER.current(corr_id)
        if span is not None:
            TRACER.past(span, "commit", start_ns)


def tell_deliveries(corr_id: str, topic: str, rows: Iterable[MessageRow]) -> None:
    """Tell of each message that a receiver gets, with a link to the span of its sender."""
    span = TRACER.current(corr_id)
    if span is None:
        return
    for row in rows:
        sender = read_traceparent(row.attrs.get(ATTRIBUTE))
        links = () if sender is None else (sender,)
        TRACER.past(span, f"deliver {topic}", now_ns(), *links, kind="consumer")
