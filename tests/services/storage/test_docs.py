"""The curl examples of the user's page, run one after the other."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.services.storage.worlds import served

pytestmark = pytest.mark.real_loop
PAGE = Path(__file__).parents[3] / "docs" / "services" / "storage.md"
COMMANDS = re.search(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)[1].strip().splitlines()


def parse(command: str) -> tuple[str, str, bytes | None, dict[str, str]]:
    """Read a curl command as the request it makes."""
    words = shlex.split(command)[1:]
    method, body, headers, url = "GET", None, {}, ""
    while words:
        word = words.pop(0)
        if word == "--data-binary":
            body = words.pop(0).encode()
        elif word == "-X":
            method = words.pop(0)
        elif word == "-I":
            method = "HEAD"
        elif word == "-H":
            name, value = words.pop(0).split(": ", 1)
            headers[name] = value
        else:
            url = word
    return method, url.removeprefix("$STORAGE"), body, headers


async def test_every_curl_example_does_what_the_page_says() -> None:
    async with served() as (_, http):
        answers = []
        for command in COMMANDS:
            method, path, body, headers = parse(command)
            answers.append(await http.ask(method, path, body, **headers))

        assert [each.status for each in answers] == [201, 200, 200, 200, 206, 304]
        assert [answers[1].body, answers[4].body] == [b"hello world", b"world"]
        assert b'"existed":true' in answers[2].body


async def test_page_names_every_setting_and_metric_of_its_own() -> None:
    text = PAGE.read_text()
    async with served() as (service, _):
        own = [
            family.name
            for family in service.store.inventory.metrics.families()
            if re.match(r"storage_|puts_|object_|drafts_|uploads_|disk_|commit_", family.name)
        ]

    assert len(own) > 8
    assert [name for name in own if name not in text] == []
