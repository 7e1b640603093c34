"""One request that was understood: who asks, what for, and from where."""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.services.interop.sqs.face.access_keys import AccessKey
from penstock.services.interop.sqs.names import PathQueue


class SqsAsked(NamedTuple):
    """A signed request whose fields were read."""

    operation: str
    fields: dict[str, Any]
    key: AccessKey
    region: str
    # Where the caller reaches this service, without a slash at its end: the beginning of the URLs it is told. Empty
    # for operations on messages, which tell none.
    base: str
    corr_id: str
    # The queue that the path names, if it names one.
    path: PathQueue | None = None
    # The request's X-Amzn-Trace-Id: a message that is sent by it carries it, unless it says one itself.
    trace: str = ""
