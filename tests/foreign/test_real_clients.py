"""Programs as users write them, with the real clients, against a live node; each prints what it saw."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.acceptance.node_process import NodeProcess
from tests.foreign import environments

pytestmark = pytest.mark.full
# Where moto asks for what AWS refuses: a retention of one second, a FIFO queue by a misspelt word, a deduplication id
# on a standard queue.
AWS_REFUSES = (
    "test_message_retention_period",
    "test_create_queue_with_different_attributes_fail",
    "test_message_delay_is_more_than_15_minutes",
)
# Where moto's words or codes are not those that AWS gave LocalStack's validated tests: we follow AWS.
AWS_SAYS_OTHERWISE = (
    "test_message_with_invalid_attributes",
    "test_change_message_visibility_on_unknown_receipt_handle",
    "test_delete_message_errors",
    "test_permissions",
    "test_remove_permission_errors",
    "test_create_fifo_queue_with_dlq",
    "test_send_messages_to_fifo_without_message_group_id",
)

# What these see is not a broker's: the queue objects of dramatiq's stub, and a join that raises what an actor raised.
LOOK_INTO_THE_STUB = {
    "test_actors_can_be_sent_messages",
    "test_actors_can_be_assigned_time_limits",
    "test_actor_messages_can_be_assigned_time_limits",
    "test_actors_can_be_assigned_message_age_limits",
    "test_actor_messages_can_be_assigned_message_age_limits",
    "test_messages_belonging_to_missing_actors_are_rejected",
    "test_workers_log_rate_limit_exceeded_errors_differently",
    "test_worker_handles_non_numeric_eta_and_logs_warning",
    "test_worker_handles_none_eta",
}


def variables(told: dict[str, str]) -> dict[str, str]:
    """Say what an AWS client reads."""
    return {
        "AWS_ENDPOINT_URL_SQS": told["endpoint"],
        "AWS_ACCESS_KEY_ID": told["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": told["secret_access_key"],
        "AWS_DEFAULT_REGION": "us-east-1",
    }


@pytest.mark.parametrize("program", ["boto3_story.py", "aiobotocore_story.py", "awscli_story.py"])
def test_aws_clients_tell_their_story(node: NodeProcess, program: str):
    printed = environments.run(program, env=variables(node.ready["sqs"]))

    assert printed.strip()


@pytest.mark.parametrize("broker", ["sqs://", "penstock://"])
def test_celery_loses_no_task_of_a_killed_worker(node: NodeProcess, tmp_path: Path, broker: str):
    env = {
        **variables(node.ready["sqs"]),
        "PENSTOCK_DATA_DIR": node.ready["data_dir"],
        "BROKER_URL": broker,
        "DONE_FILE": str(tmp_path / "done"),
        "QUEUE": f"story-{broker[:3]}",
    }

    printed = environments.run("celery_story.py", env=env)

    assert "acks_late: all 4 tasks done by another worker" in printed


def test_dramatiq_loses_no_message_of_a_killed_worker(node: NodeProcess, tmp_path: Path):
    env = {"PENSTOCK_DATA_DIR": node.ready["data_dir"], "DONE_FILE": str(tmp_path / "done")}

    printed = environments.run("dramatiq_story.py", env=env)

    assert "join: the queue is empty" in printed


def test_kombus_own_tests_of_a_transport_pass(node: NodeProcess):
    suite = str(environments.PROGRAMS / "kombu_suite.py")
    alone = ["--noconftest", "--import-mode=importlib", "--rootdir", ".", "-o", "addopts="]

    printed = environments.run_suite("kombu", *alone, suite, env={"PENSTOCK_DATA_DIR": node.ready["data_dir"]})

    assert "failed" not in printed, printed[-4000:]
    assert int(re.findall(r"(\d+) passed", printed)[-1]) >= 37


def test_dramatiqs_own_tests_pass_where_they_do_not_look_into_its_stub(node: NodeProcess):
    tests = [f"tests/test_{name}.py" for name in ("actors", "callbacks", "generic_actors", "worker", "composition")]
    options = ["--import-mode=importlib", "-o", "addopts=", "-p", "dramatiq_plugin"]

    printed = environments.run_suite("dramatiq", *options, *tests, env={"PENSTOCK_DATA_DIR": node.ready["data_dir"]})

    failed = set(re.findall(r"^(?:FAILED|ERROR) \S+::(\w+)", printed, re.MULTILINE))
    assert failed <= LOOK_INTO_THE_STUB, printed[-4000:]
    assert int(re.findall(r"(\d+) passed", printed)[-1]) >= 58


@contextmanager
def moto_node(data_dir: Path, **more: str) -> Iterator[NodeProcess]:
    """Run a node as moto's tests expect it: its account, key and port, which some of them have in their text."""
    settings = {
        "interop.bind_addr": "127.0.0.1:5000",
        "interop.sqs.account": "123456789012",
        "interop.sqs.keys.moto.id": "FOOBARKEY",
        "interop.sqs.keys.moto.secret": "env:MOTO_SECRET",
        **{f"interop.sqs.{name}": value for name, value in more.items()},
    }
    said = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    env = {**os.environ, "MOTO_SECRET": "FOOBARSECRET"}
    with NodeProcess(*said, data_dir=data_dir, env=env) as node:
        yield node


def run_motos(*tests: str) -> str:
    """Run tests of moto against the node at its port."""
    env = {
        "TEST_SERVER_MODE": "true",
        "TEST_SERVER_MODE_ENDPOINT": "http://localhost:5000",
        "AWS_ACCESS_KEY_ID": "FOOBARKEY",
        "AWS_SECRET_ACCESS_KEY": "FOOBARSECRET",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    return environments.run_suite("moto", "-p", "moto_plugin", *tests, env=env)


def test_motos_own_tests_pass(tmp_path: Path):
    # The pause after a purge is off unless it is set; with it on, queues that tests make again would be refused.
    purged = "test_purge_queue_twice_raises_purge_in_progress"
    with moto_node(tmp_path / "data"):
        printed = run_motos("tests/test_sqs/test_sqs.py", "tests/test_sqs/test_sqs_message_attributes.py")
    with moto_node(tmp_path / "patient", cooldown="60s"):
        alone = run_motos(f"tests/test_sqs/test_sqs.py::{purged}")

    failed = set(re.findall(r"^FAILED \S+::(\w+)", printed, re.MULTILINE))
    # Which of two groups comes first in a receive that has room for both is not promised.
    chosen = {purged, "test_receive_messages_with_message_group_id"}
    assert failed <= {*AWS_REFUSES, *AWS_SAYS_OTHERWISE, *chosen}, printed[-4000:]
    assert int(re.findall(r"(\d+) passed", printed)[-1]) >= 138
    assert "1 passed" in alone, alone[-4000:]
