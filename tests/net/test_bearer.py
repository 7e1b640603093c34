"""One reader of the bearer field for all services."""

from __future__ import annotations

import pytest

from penstock.net.bearer import bearer, token_in
from tests.net.server.listener_kit import get, route, serving


@pytest.mark.parametrize(
    ("field", "token"),
    [
        (b"Bearer psp1_abc", "psp1_abc"),
        (b"bearer psp1_abc", "psp1_abc"),
        (b"BEARER   psp1_abc", "psp1_abc"),
        (b"Bearer psp1_abc \t", "psp1_abc"),
        (b"Bearer two words", "two words"),
        (b"", ""),
        (b"Bearer", ""),
        (b"Bearer ", ""),
        (b"Bearer\tpsp1_abc", ""),
        (b"Bearerpsp1_abc", ""),
        (b"Basic psp1_abc", ""),
        (b"psp1_abc", ""),
        (b"Bearer caf\xc3\xa9", "caf\ufffd\ufffd"),
    ],
)
def test_a_token_is_what_stands_behind_the_scheme(field: bytes, token: str) -> None:
    assert token_in(field) == token


async def test_a_request_without_the_field_has_no_token() -> None:
    async with serving([route(lambda request: {"token": bearer(request)})]) as site:
        client = site.connect()
        client.send(get("/it") + get("/it", "Authorization: Bearer psp1_abc"))
        without, with_one = await client.answers(2)

    assert (without.json(), with_one.json()) == ({"token": ""}, {"token": "psp1_abc"})
