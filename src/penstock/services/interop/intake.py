"""What a webhook or a put meets before any work, whichever way it came: rate, brownout, origin, and a place in `work`.

The listener asks at the end of a request's headers, so that a body that will be refused is not read. The contract asks
when it is called: the gateway has read the body by then.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from penstock.kernel.errors import Backpressure, BadOrigin, NotFound, NotReady, PenstockError, RateLimited
from penstock.kernel.worker import Job
from penstock.net.server.admission import Refusal
from penstock.services.interop.judging import WebhookJudge
from penstock.services.interop.work import PutWork, WebhookJob, WebhookPromise, WebhookWork

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from penstock.contracts.storage import Stored
    from penstock.kernel.channel import Channel
    from penstock.kernel.deadline import Deadline
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.snapshot import Snapshot
    from penstock.net.message import Response
    from penstock.services.interop.brownout import Brownout
    from penstock.services.interop.config import InteropOptions
    from penstock.services.interop.endpoints import Endpoints, WebhookEndpoint
    from penstock.services.interop.providers.verdict import WebhookRequest
    from penstock.services.interop.records import BridgeRecords
    from penstock.services.interop.work import BridgeJob, PutJob

# In brownout webhooks up to this size still go through: a provider such as GitHub never sends again.
SHED_ABOVE_BYTES: Final = 64 << 10


class BridgeIntake:
    """Admits work and puts it into the `work` channel."""

    def __init__(  # noqa: PLR0913 - the parts of the service that a request meets
        self,
        inventory: Inventory,
        options: InteropOptions,
        endpoints: Snapshot[Endpoints],
        work: Channel[BridgeJob],
        *,
        records: BridgeRecords,
        brownout: Brownout,
    ) -> None:
        """Declare the rate and the places for puts."""
        self._endpoints = endpoints
        self._work = work
        self._records = records
        self._brownout = brownout
        self._clock = inventory.clock
        self._judge = WebhookJudge(records, inventory.clock)
        self.webhook_deadline_s = options.webhook_deadline_s
        self.rate = inventory.bucket("rps", rate=options.rps, depth=options.burst)
        # What nobody proved to have sent takes from a rate of its own, so that it leaves the senders theirs.
        self._unproven = inventory.bucket("unproven_rps", rate=options.rps, depth=options.burst)
        self._puts = inventory.limiter("puts", max(1, options.workers // 2))

    # --- before any work ---------------------------------------------------------------------------------------------

    def admit(self, op: str, length: int) -> None:
        """Take from the rate, and refuse what is shed now."""
        if not self.rate.try_take(self._clock.monotonic()):
            raise RateLimited("More webhooks and puts than this service takes.", scope="rps")
        self.shed(op, length)

    def shed(self, op: str, length: int) -> None:
        """Refuse puts and large webhooks while the bridge is in brownout."""
        if self._brownout.state.active and (op == "put" or length > SHED_ABOVE_BYTES):
            raise Backpressure("The bridge sheds puts and large webhooks for now.", retry_after=5)

    def endpoint(self, name: str) -> WebhookEndpoint:
        """Return an endpoint; NotFound, or NotReady while it is paused."""
        endpoint = self._endpoints.value.get(name)
        if endpoint is None:
            raise NotFound("There is no such endpoint.")
        if name in self._records.paused:
            raise NotReady("This endpoint is paused.", phase="paused")
        return endpoint

    def check_origin(
        self, endpoint: WebhookEndpoint, host: str, fields: Sequence[tuple[bytes, bytes]], corr_id: str
    ) -> None:
        """Refuse a sender that the endpoint does not take webhooks from."""
        refused = endpoint.pin.refuses(host, fields)
        if refused:
            self._records.refused(endpoint, corr_id, f"bad_origin:{refused}")
            raise BadOrigin

    # --- work --------------------------------------------------------------------------------------------------------

    def webhook(
        self, endpoint: WebhookEndpoint, request: WebhookRequest, deadline: Deadline, corr_id: str
    ) -> WebhookPromise | Refusal | Response:
        """Give a verified webhook to the workers and promise their answer; Busy when their channel is full.

        One that is refused, or is a handshake, is answered here.
        """
        work = self._judge.judge(endpoint, request, corr_id)
        if type(work) is Refusal:
            if work.status == 401:
                self.disproved()
            return work
        if not isinstance(work, WebhookWork):
            self.answered(work.status)
            return work
        promise = WebhookPromise(self, deadline)
        self._work.try_send(WebhookJob(work, promise, deadline, corr_id))
        return promise

    async def put(self, pieces: AsyncIterator[bytes], expect: str | None, deadline: Deadline, corr_id: str) -> Stored:
        """Have a worker store the pieces; Busy when as many puts as may be are under way."""
        self._puts.acquire_or_busy()
        try:
            job: PutJob = Job(PutWork(pieces, expect), deadline=deadline, corr_id=corr_id)
            self._work.try_send(job)
            stored = await job.reply
        except PenstockError as error:
            self.answered(error.status)
            raise
        except asyncio.CancelledError:
            self.gave_up(deadline)
            raise
        finally:
            self._puts.release()
        self.answered(202)
        return stored

    # --- answers, for the brownout -----------------------------------------------------------------------------------

    def answered(self, status: int) -> None:
        """Count an answer."""
        self._brownout.note_answer(self._clock.monotonic(), status)
        if status == 401:
            self.disproved()

    def disproved(self) -> None:
        """Give back what a request took from the rate whose signature or token does not hold.

        Nobody can know that before it was checked. Strangers have as much for themselves as the senders have: beyond
        that they take from the senders' rate, because checking is work too.
        """
        if self._unproven.try_take(self._clock.monotonic()):
            self.rate.give_back()

    def gave_up(self, deadline: Deadline) -> None:
        """Count one that nobody waits for any more as a 504 if its deadline had passed; a client that left is none."""
        now = self._clock.monotonic()
        if deadline.expired(now):
            self._brownout.note_answer(now, 504)
