"""The Worker Pool: takes up to 64 jobs at once; webhooks go on as one batch, each put is a task of its own.

A put may take minutes, so it never holds a worker: it runs in the worker's scope. The scopes together hold at most half
as many puts as there are workers, which the listener has seen to before the job got here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from penstock.contracts.storage import Storage, Stored
from penstock.kernel.deadline import timeout, use_deadline
from penstock.kernel.errors import Busy, Canceled, Closed, Internal, NotReady, PenstockError, Timeout
from penstock.rpc.storage_streams import put_stream
from penstock.services.interop.authority import Purpose
from penstock.services.interop.webhooks import Behind, WebhookDesk
from penstock.services.interop.work import WebhookJob

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from penstock.kernel.channel import Channel
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.scope import Scope
    from penstock.services.interop.records import BridgeRecords
    from penstock.services.interop.work import BridgeJob, PutJob

BATCH: Final = 64
CHUNK_S: Final = 5.0


class BridgeWorker:
    """Works off the `work` channel; one object serves all instances."""

    def __init__(self, inventory: Inventory, behind: Behind, records: BridgeRecords, puts_max: int) -> None:
        """Take the services behind and the number of puts that may be streamed at once."""
        self._behind = behind
        self._records = records
        self._puts_max = puts_max
        self._desk = WebhookDesk(behind, records, inventory.clock)
        self._clock = inventory.clock
        inventory.timeout("put_chunk", CHUNK_S, "408: the next piece of a put did not come")

    async def run(self, child: Child, work: Channel[BridgeJob]) -> None:
        """Work until the channel is closed and empty, and its puts have ended."""
        puts = child.scope("put", self._puts_max)
        while True:
            try:
                jobs = await work.recv_many(BATCH)
            except Closed:
                break
            webhooks: list[WebhookJob] = []
            try:
                for job in jobs:
                    if not job.take():
                        continue
                    if isinstance(job, WebhookJob):
                        webhooks.append(job)
                    else:
                        self._begin_put(puts, job)
                await self._desk.work(webhooks)
            finally:
                # Whatever ended the worker here must not leave a sender waiting. Puts answer for themselves.
                _answer_left(webhooks, work)
        await puts.join()

    def _begin_put(self, puts: Scope, job: PutJob) -> None:
        try:
            puts.start(self._put(job))
        except Busy as error:
            job.fail(error)

    # --- puts --------------------------------------------------------------------------------------------------------

    async def _put(self, job: PutJob) -> None:
        try:
            with use_deadline(job.deadline):
                job.done(await self._store(job))
        except PenstockError as error:
            self._records.put(job.corr_id, "", error.code)
            job.fail(error)
        finally:
            if not job.reply.done():
                job.fail(Canceled())

    async def _store(self, job: PutJob) -> Stored:
        behind, storage, work = self._behind, self._behind.storage, job.value
        if storage is None:
            raise NotReady("svc-storage does not run here.", phase="absent", service="svc-storage")
        call = await behind.authority.call(Purpose("interop:put", "svc-storage", "put"), job.corr_id)
        paced = cast("Storage", _Paced(storage))
        stored = await put_stream(paced, _each_in_time(work.pieces), expect=work.expect, call=call)
        self._records.put(job.corr_id, stored.address)
        return stored


def _answer_left(jobs: list[WebhookJob], work: Channel[BridgeJob]) -> None:
    """Answer webhooks that a crash of their worker left behind."""
    for job in jobs:
        if not job.promise.done:
            job.fail(Canceled() if work.closed else Internal(corr_id=job.corr_id))


async def _each_in_time(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Pass pieces on; the next one has to come in time."""
    source = aiter(pieces)
    while True:
        try:
            async with timeout("put_chunk", CHUNK_S):
                piece = await anext(source)
        except StopAsyncIteration:
            return
        except Timeout as late:
            raise Timeout("put_chunk", budget_s=CHUNK_S, status=408) from late
        yield piece


class _Paced:
    """The storage contract with a deadline for every call of a stream."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._storage, name)

        async def call(*args: object) -> object:
            async with timeout("put_chunk", CHUNK_S):
                return await method(*args)

        return call
