"""A pytest plugin for dramatiq's own tests: its fixtures, with our broker where its own stand for a broker.

dramatiq's source distribution has its tests without the two files that they share; this has what they need of them.
"""

from __future__ import annotations

import sys
import types
import uuid
from contextlib import contextmanager

import dramatiq
import pytest
from dramatiq import Worker
from dramatiq.rate_limits.backends import StubBackend as StubLimits
from dramatiq.results.backends import StubBackend as StubResults

from penstock.transports.dramatiq import PenstockBroker


@contextmanager
def worker(*args, **kwargs):
    """Run a worker for a while."""
    running = Worker(*args, **kwargs)
    running.start()
    try:
        yield running
    finally:
        running.stop()


shared = types.ModuleType("tests.common")
shared.worker = worker
shared.skip_on_pypy = shared.skip_on_windows = pytest.mark.filterwarnings("default")
shared.RESULT_BACKENDS = {}
sys.modules["tests.common"] = shared


class SuiteBroker(PenstockBroker):
    """Ours; what a join of the stub may be told besides, to raise what an actor raised, is not a broker's."""

    def join(self, queue_name, *, timeout=None, fail_fast=False):
        """Wait until the queue is empty."""
        super().join(queue_name, timeout=timeout)


@pytest.fixture
def result_backend():
    """Keep results in memory: they are not the broker's."""
    return StubResults()


@pytest.fixture
def rate_limiter_backend():
    """Count in memory: limits are not the broker's."""
    return StubLimits()


@pytest.fixture
def stub_broker():
    """A broker with topics of this test's own."""
    broker = SuiteBroker(topic_prefix=f"dramatiq-suite/{uuid.uuid4().hex}/", lease_s=5)
    broker.emit_after("process_boot")
    dramatiq.set_broker(broker)
    yield broker
    broker.close()


@pytest.fixture
def stub_worker(stub_broker):
    """A worker of that broker."""
    running = Worker(stub_broker, worker_timeout=100, worker_threads=32)
    running.start()
    yield running
    running.stop()
