"""Host and Origin, by every spelling an attacker may try; and what a refused request leaves in memory."""

from __future__ import annotations

import gc
from dataclasses import replace

import msgspec
import pytest

from penstock.kernel.errors import PenstockError
from tests.net.server.listener_kit import get, post, serving


@pytest.mark.parametrize("host", ["[:::]", "[....]", "[127.0.0.1]", "[::1", "[]", "a:b:c", "[::1]x"])
async def test_a_host_that_is_none_is_answered_with_400_and_never_with_silence(host: str) -> None:
    async with serving() as site:
        client = site.connect()
        client.send(f"GET /hello HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        answer = await client.answer()

    assert answer.status in {400, 421}


async def test_a_foreign_host_is_told_which_setting_lets_it_in() -> None:
    async with serving() as site:
        client = site.connect()
        client.send(b"GET /hello HTTP/1.1\r\nHost: queue.example.org\r\n\r\n")
        answer = await client.answer()

    told = msgspec.json.decode(answer.body)
    assert answer.status == 421
    assert told["setting"].endswith(".allowed_hosts")
    assert told["setting"] in told["hint"]


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:80", "localhost.", "127.0.0.1", "127.9.9.9:1", "[::1]", "[::1]:80"]
)
async def test_a_loopback_listener_knows_its_own_names(host: str) -> None:
    async with serving() as site:
        client = site.connect()
        client.send(f"GET /hello HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())

        assert (await client.answer()).status == 200


@pytest.mark.parametrize(
    "field",
    [
        "Sec-Fetch-Site: Cross-Site",
        "Origin: null",
        "Origin: HTTP://EVIL.example",
        "Origin: ftp://localhost",
        "Origin: ://",
    ],
)
async def test_a_cross_site_post_is_refused_however_it_is_spelled(field: str) -> None:
    async with serving() as site:
        client = site.connect()
        client.send(post("/echo", b'{"text":"a"}', field))

        assert (await client.answer()).status == 403


async def test_an_event_stream_from_another_site_is_refused_in_any_letter_case() -> None:
    async with serving() as site:
        client = site.connect()
        client.send(get("/hello", "Accept: Text/Event-Stream", "Origin: http://evil.example"))

        assert (await client.answer()).status == 403


@pytest.mark.parametrize("body", [b'{"text":"\xff\xfe"}', b'{"text":1}', b"{", b'{"text":"a","n":NaN}'])
async def test_a_body_that_is_no_json_is_the_callers_400(body: bytes) -> None:
    async with serving() as site:
        client = site.connect()
        client.send(post("/echo", body))
        answer = await client.answer()

    assert (answer.status, answer.json()["code"]) == (400, "malformed")


@pytest.mark.parametrize(
    "request_bytes", [post("/echo", b'{"text":1}'), get("/nowhere"), post("/echo", b'{"text":"\xff"}')]
)
async def test_a_refused_request_leaves_no_cycle_for_the_collector(request_bytes: bytes) -> None:
    """An error whose stack holds the frame that holds the error keeps its request alive: megabytes at a time."""
    async with serving() as site:
        client = site.connect()
        client.send(request_bytes)
        await client.answer()
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                client.send(request_bytes)
                await client.answer()
            kept = [thing for thing in gc.get_objects() if isinstance(thing, PenstockError) and thing.__traceback__]
        finally:
            gc.enable()

    assert kept == []


async def test_a_head_that_was_let_in_by_the_old_rules_has_to_pass_the_new_ones() -> None:
    asked = b"GET /hello HTTP/1.1\r\nHost: mail.example\r\n\r\n"
    async with serving(options={"allowed_hosts": ("mail.example",)}) as site:
        old = site.connect()
        old.send(asked)
        first = await old.answer()
        await site.listener.reconfigure(replace(site.listener.options, allowed_hosts=()))
        old.send(asked)
        new = site.connect()
        new.send(asked)

        assert first.status == 200
        assert [(await client.answer()).status for client in (old, new)] == [421, 421]
