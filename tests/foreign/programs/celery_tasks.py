"""A Celery application as a user writes it; the broker's URL comes from the environment."""

from __future__ import annotations

import os
import time
from pathlib import Path

from celery import Celery

BROKER = os.environ["BROKER_URL"]
if BROKER.startswith("penstock"):
    import penstock.transports.kombu  # noqa: F401 - makes penstock:// a broker URL

DONE = Path(os.environ["DONE_FILE"])
app = Celery("tasks", broker=BROKER)
app.conf.update(
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"visibility_timeout": 5, "lease_s": 5, "wait_time_seconds": 1, "polling_interval": 0.1},
    task_default_queue=os.environ.get("QUEUE", "tasks"),
)


def note(line: str) -> None:
    """Append a line in one write, so that workers do not mix theirs."""
    with DONE.open("a") as out:
        out.write(line + "\n")


@app.task
def add(a: int, b: int) -> None:
    """Do something small."""
    note(f"add {a} {b} {a + b}")


@app.task(bind=True, max_retries=3)
def flaky(self, number: int) -> None:
    """Fail twice, then succeed."""
    if self.request.retries < 2:
        raise self.retry(countdown=0.2)
    note(f"flaky {number} {self.request.retries}")


@app.task
def slow(number: int, seconds: float) -> None:
    """Take long: the worker is killed meanwhile."""
    note(f"begun {number}")
    time.sleep(seconds)
    note(f"slow {number}")


@app.task
def late(number: int, due: float) -> None:
    """Tell how late it is after its ETA."""
    note(f"late {number} {time.time() - due:.1f}")
