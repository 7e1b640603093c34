"""From HTTP to a job and back: the route sends the job into the bounded channel and returns its reply future."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from penstock.kernel.errors import PolicyBlocked
from penstock.kernel.worker import Job
from penstock.net.server.route import Route

if TYPE_CHECKING:
    import asyncio

    from penstock.kernel.channel import Channel
    from penstock.net.message import Request

Fault = Literal["none", "raise"]


class EchoIn(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The text to return, and how long the worker takes for it."""

    text: Annotated[str, msgspec.Meta(max_length=65536)]
    delay_ms: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    fault: Fault = "none"


class EchoOut(msgspec.Struct, frozen=True):
    """The text, and which worker returned it."""

    text: str
    worker: int


EchoJob = Job[EchoIn, EchoOut]


class EchoRoutes:
    """The one data route."""

    def __init__(self, work: Channel[EchoJob], *, chaos: bool) -> None:
        """Send into `work`; faults on demand are only for nodes that allow chaos."""
        self._work = work
        self._chaos = chaos

    def routes(self) -> list[Route]:
        """Describe the route; OpenAPI and the router read the same description."""
        return [
            Route(
                method="POST",
                path="/v1/echo",
                handler=self._echo,
                body=EchoIn,
                answer=EchoOut,
                op="echo",
                summary="Say something back through the bounded work channel.",
                open=True,
                errors=("malformed", "over_limit", "busy", "not_ready", "policy_blocked", "timeout", "internal"),
            )
        ]

    def _echo(self, request: Request, asked: EchoIn) -> asyncio.Future[EchoOut]:
        if asked.fault != "none" and not self._chaos:
            raise PolicyBlocked("Faults on demand need node.chaos = true.")
        job: EchoJob = Job(asked, deadline=request.deadline, corr_id=request.corr_id)
        self._work.try_send(job)
        return job.reply
