"""botocore's own SQS client for a running node, and the same operations in the older query protocol."""

from __future__ import annotations

import http.client
from typing import Any
from urllib.parse import urlencode, urlsplit

import botocore.session
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials

from tests.services.interop.sqs import botocore_models as oracle

REGION = "us-east-1"


def client_of(told: dict[str, str], tries: int = 8) -> Any:
    """Make a client from what the ready line says; it gives up late, because a test's machine may freeze."""
    return botocore.session.get_session().create_client(
        "sqs",
        REGION,
        endpoint_url=told["endpoint"],
        aws_access_key_id=told["access_key_id"],
        aws_secret_access_key=told["secret_access_key"],
        config=Config(connect_timeout=30, read_timeout=60, retries={"max_attempts": tries}),
    )


def by_query(told: dict[str, str], operation: str, **params: Any) -> dict[str, Any]:
    """Do an operation in the query protocol: a form goes there, XML comes back."""
    request = oracle.serialize("query", operation, params)
    body = urlencode(request["body"]).encode()
    headers = {name: str(value) for name, value in request["headers"].items()}
    signed = AWSRequest("POST", told["endpoint"] + "/", data=body, headers=headers)
    key = Credentials(told["access_key_id"], told["secret_access_key"])
    SigV4Auth(key, "sqs", REGION).add_auth(signed)
    where = urlsplit(told["endpoint"])
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
    try:
        connection.request("POST", "/", body, dict(signed.headers.items()))
        answer = connection.getresponse()
        return oracle.parse("query", operation, answer.status, dict(answer.getheaders()), answer.read())
    finally:
        connection.close()
