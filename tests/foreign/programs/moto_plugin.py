"""A pytest plugin for moto's own SQS tests: between tests it empties a node as moto's server does.

moto's server mode asks a route of moto's own server to forget everything. A node has no such route; its queues are
deleted instead, by the protocol.
"""

from __future__ import annotations

from functools import cache

import boto3
from moto.core import DEFAULT_ACCOUNT_ID as ACCOUNT_ID
from moto.core.models import ServerModeMockAWS

REGIONS = ("us-east-1", "us-east-2", "us-west-1", "us-west-2", "eu-west-1", "eu-central-1", "ap-northeast-1")


@cache
def _clients(endpoint: str) -> list:
    session = boto3.session.Session()
    return [session.client("sqs", region, endpoint_url=endpoint) for region in REGIONS]


def _forget_everything(self: ServerModeMockAWS) -> None:
    for client in _clients(self._test_server_mode_endpoint):
        for url in client.list_queues().get("QueueUrls", ()):
            client.delete_queue(QueueUrl=url)


class _Identity:
    """What moto's tests ask STS for: the account they run in."""

    def get_caller_identity(self) -> dict[str, str]:
        return {"Account": ACCOUNT_ID}


_enable = ServerModeMockAWS._enable_patching


def _enable_with_identity(self: ServerModeMockAWS, reset: bool = True) -> None:
    _enable(self, reset)
    to_node = boto3.client

    def client(*args, **kwargs):
        return _Identity() if args[:1] == ("sts",) else to_node(*args, **kwargs)

    boto3.client = client


ServerModeMockAWS._enable_patching = _enable_with_identity
ServerModeMockAWS.reset = _forget_everything
