"""Byte budgets are charged at the gate, once for all who are behind it: a body that hides its length is not free."""

from __future__ import annotations

import gzip

import pytest

from tests.net.server.listener_kit import get, post
from tests.services.omnigate.gate.kit import AUD, gated

CHUNKED = "5\r\nhello\r\n0\r\n\r\n"


def chunked(path: str, *fields: str) -> bytes:
    """Write a POST of five bytes that does not tell its length beforehand."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Transfer-Encoding: chunked", *fields, "", CHUNKED]
    return "\r\n".join(lines).encode()


@pytest.mark.parametrize(("allowed_bytes", "statuses"), [(100, [200, 429, 429]), (2500, [200, 200, 200])])
async def test_a_body_of_unknown_length_costs_the_most_it_can_be_of_a_byte_budget(
    allowed_bytes: int, statuses: list[int]
) -> None:
    packed = gzip.compress(bytes(100))
    async with gated(options={"body_bytes_max": 1000}) as site:
        field = f"Authorization: Bearer {site.issuer.token(f'budget.bytes={allowed_bytes}', aud=AUD)}"
        seen = []
        for data in (
            post("/now", b"hello", field),
            chunked("/now", field),
            post("/now", packed, field, "Content-Encoding: gzip"),
        ):
            client = site.connect()
            client.send(data)
            seen.append((await client.answer()).status)

    assert seen == statuses


async def test_what_has_no_body_costs_nothing_of_a_byte_budget() -> None:
    async with gated() as site:
        field = f"Authorization: Bearer {site.issuer.token('budget.bytes=1', aud=AUD)}"
        client = site.connect()
        client.send(get("/now", field, "Content-Encoding: gzip"))
        answer = await client.answer()

    assert answer.status == 200
