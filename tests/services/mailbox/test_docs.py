"""The curl examples of the user's page, run one after the other."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.services.mailbox.test_http import served

pytestmark = pytest.mark.real_loop
PAGE = Path(__file__).parents[3] / "docs" / "services" / "mailbox.md"
COMMANDS = re.search(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)[1].strip().splitlines()


def parse(command: str) -> tuple[str, str, bytes, str]:
    """Read a curl command as the request it makes."""
    words = shlex.split(command)[1:]
    method, body, headers, url = "GET", b"", "", ""
    while words:
        word = words.pop(0)
        if word in ("-d", "--data-binary"):
            method, body = "POST", words.pop(0).encode()
        elif word == "-X":
            method = words.pop(0)
        elif word == "-H":
            headers += words.pop(0) + "\r\n"
        else:
            url = word
    return method, url.removeprefix("$MAILBOX"), body, headers


async def test_every_curl_example_works() -> None:
    msg_id = receipt = ""
    async with served() as (_, http, _):
        for command in COMMANDS:
            method, path, body, headers = parse(command.replace("MSG_ID", msg_id).replace("RECEIPT", receipt))
            status, answer = await http.request(method, path, body, headers)
            assert status in (200, 202), (command, answer)
            for message in answer.get("messages", []):
                msg_id, receipt = message["msg_id"], message.get("receipt", receipt)


def test_page_names_every_route() -> None:
    text = PAGE.read_text()
    for route in (
        "/v1/send",
        "/v1/send/batch",
        "/v1/recv",
        "/v1/recv/stream",
        "/v1/ack",
        "/v1/nack",
        "/v1/extend",
        "/v1/dlq",
    ):
        assert route in text
