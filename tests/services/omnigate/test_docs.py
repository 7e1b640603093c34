"""The examples of the user's page, run against a node."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from penstock.services.omnigate.gate.policy import parse_bundle
from penstock.services.omnigate.own.views import read_views
from tests.acceptance.node_process import NodeProcess

PAGE = (Path(__file__).parents[3] / "docs" / "services" / "omnigate.md").read_text()
COMMANDS = re.search(r"```sh\n(.*?)```", PAGE, re.DOTALL)[1].strip().splitlines()  # type: ignore[index]
TOML = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


def parse(command: str) -> tuple[str, str, bytes | None, dict[str, str]]:
    """Read a curl command as the request it makes."""
    words = shlex.split(command)[1:]
    method, body, url = "GET", None, ""
    headers: dict[str, str] = {}
    while words:
        word = words.pop(0)
        if word in {"-d", "--data-binary"}:
            method, body = "POST" if method == "GET" else method, words.pop(0).encode()
        elif word == "-X":
            method = words.pop(0)
        elif word == "-H":
            name, _, value = words.pop(0).partition(": ")
            headers[name] = value
        else:
            url = word
    return method, url.removeprefix("$GATE"), body, headers


def test_every_curl_example_works() -> None:
    known: dict[str, str] = {}
    with NodeProcess() as node:
        known["$TOKEN"] = node.ready["token"]
        for command in COMMANDS:
            for name, value in known.items():
                command = command.replace(name, value)  # noqa: PLW2901 - filled in as a reader would
            method, path, body, headers = parse(command)
            connection = node.connect("omnigate")
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
            connection.close()
            assert answer.status in {200, 201, 206}, (command, data)
            for name, pattern in (
                ("ADDRESS", rb'"address":"([^"]+)"'),
                ("MSG_ID", rb'"msg_id":"([^"]+)"'),
                ("RECEIPT", rb'"receipt":"([^"]+)"'),
            ):
                found = re.search(pattern, data)
                if found is not None:
                    known[name] = found[1].decode()


def test_the_configuration_examples_are_valid() -> None:
    route, views, policy = TOML
    defaults = {"source": "http", "required": True, "timeout": 1.0, "fallback": "omit", "default": "null"}
    rows = tomllib.loads(views)["omnigate"]["views"]
    filled = tuple({**row, "parts": [{**defaults, **part} for part in row["parts"]]} for row in rows)

    assert tomllib.loads(route)["omnigate"]["routes"][0]["prefix"] == "/shop"
    assert read_views(filled, parts_max=3)["home"].params == ("id",)
    assert len(parse_bundle(policy.encode()).rules) == 2


@pytest.mark.parametrize("key", ["prefix", "upstream", "methods", "require", "class", "timeout", "retry", "hedge"])
def test_the_page_names_every_key_of_a_route(key: str) -> None:
    assert f"`{key}`" in PAGE or f"{key} =" in PAGE
