"""Names of queues: what a name may be, its URL, its ARN, its topic, and the paths a request may come to; pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from penstock.services.interop.sqs.refusals import SqsRefusal, invalid, no_queue

FIFO: Final = ".fifo"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)
_FIFO_NAME: Final = re.compile(r"(?=.{6,80}\Z)[A-Za-z0-9_-]+\.fifo", re.ASCII)
_ACCOUNT: Final = re.compile(r"[0-9]{12}", re.ASCII)
_REGION: Final = re.compile(r"[a-z0-9-]{1,32}", re.ASCII)
_ARN: Final = re.compile(r"arn:aws[a-z-]*:sqs:([a-z0-9-]{1,32}):([0-9]{12}):([A-Za-z0-9_.-]{1,80})", re.ASCII)
# Paths that are the service itself.
ROOTS: Final = frozenset({"/", "/sqs", "/sqs/"})


class QueueName(NamedTuple):
    """A queue: the region that made it, and its name there."""

    region: str
    name: str

    @property
    def is_fifo(self) -> bool:
        """Tell whether the queue keeps order."""
        return self.name.endswith(FIFO)

    def arn(self, account: str) -> str:
        """Return the name by which policies call the queue."""
        return f"arn:aws:sqs:{self.region}:{account}:{self.name}"


def check_name(name: str, *, fifo: bool) -> str:
    """Take the name of a new queue."""
    if fifo and not _FIFO_NAME.fullmatch(name):
        raise invalid(
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, "
            "must end with .fifo suffix and be 1 to 80 in length."
        )
    if not fifo and not _NAME.fullmatch(name):
        raise invalid("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
    return name


def is_name(name: str) -> bool:
    """Tell whether a queue could have this name."""
    return bool(_NAME.fullmatch(name) or _FIFO_NAME.fullmatch(name))


def topic_of(queue: QueueName, *, first: bool) -> str:
    """Return the queue's topic; only the first region to make a name has the short one."""
    return f"sqs/{queue.name}" if first else f"sqs/{queue.region}/{queue.name}"


def queue_url(base: str, queue: QueueName, account: str, *, first: bool) -> str:
    """Return the URL of a queue under this base, which has no slash at its end."""
    path = f"{account}/{queue.name}" if first else f"queue/{queue.region}/{account}/{queue.name}"
    return f"{base}/{path}"


class PathQueue(NamedTuple):
    """The queue that a path names; the region is empty where the path has none."""

    account: str
    name: str
    region: str = ""


def read_path(path: str) -> PathQueue | None:
    """Return the queue that a request's path names, None for the service itself; other paths are not ours."""
    if path in ROOTS:
        return None
    parts = path.strip("/").split("/")
    if parts[0] == "sqs":
        parts = parts[1:]
    region = ""
    if len(parts) == 4 and parts[0] == "queue":
        region, parts = parts[1], parts[2:]
    if len(parts) != 2 or not _ACCOUNT.fullmatch(parts[0]) or not is_name(parts[1]):
        raise SqsRefusal("InvalidAddress", f"The address {path[:200]} is not valid for this endpoint.")
    if region and not _REGION.fullmatch(region):
        raise SqsRefusal("InvalidAddress", f"The address {path[:200]} is not valid for this endpoint.")
    return PathQueue(parts[0], parts[1], region)


def read_queue_url(url: str) -> PathQueue:
    """Read a QueueUrl; a bare name and a foreign host are understood, because clients keep old URLs."""
    if is_name(url):
        return PathQueue("", url)
    try:
        path = urlsplit(url).path
        found = read_path(path)
    except (ValueError, SqsRefusal) as exc:
        raise no_queue() from exc
    if found is None:
        raise no_queue()
    return found


def read_arn(arn: str) -> QueueName:
    """Read the ARN of a queue."""
    found = _ARN.fullmatch(arn)
    if found is None or not is_name(found[3]):
        raise invalid(f"Value {arn[:200]} for parameter Arn is invalid. Reason: this is not the ARN of a queue.")
    return QueueName(found[1], found[3])
