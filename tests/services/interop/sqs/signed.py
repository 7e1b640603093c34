"""A client of the SQS face for tests: botocore writes and signs requests and reads answers, in both protocols."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from penstock.services.interop.sqs.face.access_keys import AccessKey
from penstock.services.interop.sqs.face.wiring import SqsOptions
from tests.services.interop.sqs import botocore_models as oracle
from tests.services.interop.worlds import Answer, World, bridge

KEY = AccessKey(id="TESTKEYID", secret="obviously/not+a+secret", name="test")
TARGETS = "AmazonSQS."


class SqsError(Exception):
    """What the service refused."""

    def __init__(self, status: int, parsed: dict[str, Any]) -> None:
        super().__init__(f"{status} {parsed}")
        self.status = status
        self.code: str = parsed["Error"]["Code"]
        self.message: str = parsed["Error"]["Message"]


@dataclass
class SqsClient:
    """Asks a bridge as one access key, in one protocol."""

    world: World
    protocol: str = "json"
    key: AccessKey = KEY
    region: str = "us-east-1"

    def signed(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[tuple[bytes, bytes], ...]:
        """Sign a request as botocore does."""
        request = AWSRequest(method, f"http://localhost{path}", data=body, headers={"Host": "localhost", **headers})
        SigV4Auth(Credentials(self.key.id, self.key.secret), "sqs", self.region).add_auth(request)
        return tuple((k.encode(), v.encode()) for k, v in request.headers.items() if k.lower() != "host")

    async def raw(
        self, body: bytes, headers: dict[str, str] | None = None, *, method: str = "POST", path: str = "/"
    ) -> Answer:
        """Send a signed request, whatever is in it."""
        given = headers or {}
        return await self.world.http.ask(method, path, body, self.signed(method, path, body, given))

    async def ask(self, operation: str, path: str = "/", **params: Any) -> Answer:
        """Have botocore write a request, and return the answer as it came."""
        request = oracle.serialize(self.protocol, operation, params)
        body = request["body"] if self.protocol == "json" else urlencode(request["body"]).encode()
        headers = {name: str(value) for name, value in request["headers"].items()}
        return await self.raw(body if isinstance(body, bytes) else body.encode(), headers, path=path)

    async def __call__(self, operation: str, **params: Any) -> dict[str, Any]:
        """Do an operation; a refusal is an SqsError."""
        answer = await self.ask(operation, **params)
        return self.read(operation, answer)

    def read(self, operation: str, answer: Answer) -> dict[str, Any]:
        """Have botocore read an answer."""
        parsed = oracle.parse(self.protocol, operation, answer.status, answer.headers, answer.body)
        if answer.status >= 300:
            raise SqsError(answer.status, parsed)
        parsed.pop("ResponseMetadata", None)
        return parsed

    async def queue(self, name: str = "q", **attributes: str) -> str:
        """Make a queue and return its URL."""
        made = await self("CreateQueue", QueueName=name, Attributes=attributes)
        return str(made["QueueUrl"])

    async def fifo(self, name: str = "q.fifo", **attributes: str) -> str:
        """Make a FIFO queue and return its URL."""
        return await self.queue(name, FifoQueue="true", ContentBasedDeduplication="true", **attributes)

    async def send(self, url: str, body: str, **more: Any) -> dict[str, Any]:
        """Send a message."""
        return await self("SendMessage", QueueUrl=url, MessageBody=body, **more)

    async def receive(self, url: str, count: int = 10, **more: Any) -> list[dict[str, Any]]:
        """Receive messages."""
        found = await self("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=count, AttributeNames=["All"], **more)
        return list(found.get("Messages", []))

    async def bodies(self, url: str, count: int = 10, **more: Any) -> list[str]:
        """Receive messages, and return their bodies."""
        return [message["Body"] for message in await self.receive(url, count, **more)]

    async def delete(self, url: str, message: dict[str, Any]) -> None:
        """Delete a message."""
        await self("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    async def counts(self, url: str) -> tuple[int, int, int]:
        """Return how many are visible, in flight and delayed."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        names.append("ApproximateNumberOfMessagesDelayed")
        found = (await self("GetQueueAttributes", QueueUrl=url, AttributeNames=names))["Attributes"]
        visible, inflight, delayed = (int(found[name]) for name in names)
        return visible, inflight, delayed


@asynccontextmanager
async def face(protocol: str = "json", *, mailbox: Any = None, **options: Any) -> AsyncIterator[SqsClient]:
    """Run a bridge with the SQS face over a mailbox in RAM, or the given one."""
    chosen = SqsOptions(**{"keys": (KEY,), **options})
    async with bridge(mailbox=mailbox, sqs=chosen) as world:
        yield SqsClient(world, protocol)


def error_of(answer: Answer) -> tuple[int, str]:
    """Read status and code of a refusal, in whichever protocol it came."""
    if answer.headers["content-type"] == "application/x-amz-json-1.0":
        said = json.loads(answer.body)
        assert said["__type"].startswith("com.amazonaws.sqs#")
        return answer.status, answer.headers["x-amzn-query-error"].partition(";")[0]
    from xml.etree import ElementTree as ET

    space = "{http://queue.amazonaws.com/doc/2012-11-05/}"
    code = ET.fromstring(answer.body).find(f"{space}Error/{space}Code")
    assert code is not None
    return answer.status, str(code.text)
