"""A pytest plugin for LocalStack's own SQS tests: they run against a node instead of LocalStack.

Only the tests that LocalStack's authors ran against AWS are kept, those too that LocalStack itself skips because it
does not do what AWS does. PENSTOCK_LOCALSTACK says which part of them runs: `quick`, `pauses` or `minutes`.
"""

from __future__ import annotations

import os
import socket

import pytest
from botocore.auth import SigV4Auth

# LocalStack's public name for this machine. Answers of AWS are recorded with it in the place of AWS's own.
DOMAIN = "localhost.localstack.cloud"
# For a node that keeps AWS's pauses after a purge and a delete.
PAUSES = ("test_create_queue_recently_deleted", "test_successive_purge_calls_fail")
# These wait for minutes where they believe themselves to be on AWS, and ask for what AWS refuses where they do not.
MINUTES = (
    "test_message_retention",
    "test_message_retention_fifo",
    "test_message_retention_with_inflight",
    "test_deduplication_interval",
)
# Nothing of AWS is recorded for these, so there is nothing to compare with.
UNRECORDED = (
    "test_fifo_delete_message_with_expired_receipt_handle",
    "test_invalid_dead_letter_arn_rejected_before_lookup",
)
# What these expect is LocalStack's own: the forms of its queue URLs, and an answer of which the test itself says that
# AWS gives another one.
LOCALSTACKS_OWN = (
    "test_marker_serialization_json_protocol",
    "test_list_queues_multi_region_with_endpoint_strategy_standard",
    "test_list_queues_multi_region_with_endpoint_strategy_domain",
    "test_endpoint_strategy_with_multi_region[off]",
)
PART = os.environ["PENSTOCK_LOCALSTACK"]
_resolve = socket.getaddrinfo


def _resolve_here(host, *arguments, **named):
    here = isinstance(host, str) and host.endswith(DOMAIN)
    return _resolve("127.0.0.1" if here else host, *arguments, **named)


socket.getaddrinfo = _resolve_here
_sign_as = SigV4Auth.__init__


def _sign_as_sqs(self, credentials, service_name, region_name):
    # LocalStack has a second name for the older protocol; AWS takes signatures for `sqs` alone.
    _sign_as(self, credentials, "sqs" if service_name == "sqs_query" else service_name, region_name)


SigV4Auth.__init__ = _sign_as_sqs


def _part_of(item: pytest.Item) -> str:
    name = item.originalname
    if name in UNRECORDED or name in LOCALSTACKS_OWN or item.name in LOCALSTACKS_OWN:
        return "none"
    return "pauses" if name in PAUSES else "minutes" if name in MINUTES else "quick"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    validated = [item for item in items if item.get_closest_marker("aws_validated")]
    items[:] = [item for item in validated if _part_of(item) == PART]
    for item in items:
        item.own_markers = [mark for mark in item.own_markers if mark.name not in ("skip", "skipif")]


@pytest.fixture(autouse=True)
def _as_on_aws(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if PART == "minutes":
        monkeypatch.setattr(request.module, "is_aws_cloud", lambda: True)
