"""What the mailbox is made of: its tasks in order, its channels and how large they are."""

from __future__ import annotations

import pytest

from penstock.kernel.child import Drain
from penstock.kernel.inventory import Inventory
from penstock.services.mailbox.config import MailboxOptions
from penstock.services.mailbox.service import SERVICE, MailboxService
from tests.services.mailbox.test_http import LISTENER
from tests.services.mailbox.worlds import make_engine

# In start order, and stopped in reverse: what it is called, how many, critical, how it drains.
TASKS = [
    ("writer", 1, True, Drain.FINISH),
    ("shard_worker", 8, True, Drain.FINISH),
    ("visibility_scanner", 1, True, Drain.HALT),
    ("dlq_reprocessor", 1, False, Drain.HALT),
    ("dead_letter_mover", 1, False, Drain.HALT),
    ("checkpointer", 1, False, Drain.HALT),
    ("retention", 1, False, Drain.HALT),
    ("cap_cache_refresher", 1, False, Drain.HALT),
    ("rebalancer", 1, False, Drain.HALT),
    ("listener", 1, True, Drain.STOP_INTAKE),
]


def wired(tmp_path, **options) -> MailboxService:
    return MailboxService(Inventory(SERVICE), MailboxOptions(**options), engine=make_engine("memory", tmp_path))


async def test_tasks_are_those_of_the_founding_document_in_their_order(tmp_path) -> None:
    specs = wired(tmp_path, listener=LISTENER).children()

    assert [(spec.name, spec.instances, spec.critical, spec.drain) for spec in specs] == TASKS


@pytest.mark.parametrize(("shard_capacity", "requeue"), [(4096, 512), (2048, 512), (400, 100), (3, 1)])
async def test_requeue_is_a_quarter_of_work_and_at_most_512(shard_capacity: int, requeue: int, tmp_path) -> None:
    workers = wired(tmp_path, shard_capacity=shard_capacity).dispatcher.workers

    assert {(worker.work.capacity, worker.requeue.capacity) for worker in workers} == {(shard_capacity, requeue)}
