"""What a check of a signature needs of a listener: the body as it was sent, and the fields one by one."""

from __future__ import annotations

import gzip

from penstock.net.message import Request
from tests.net.server.listener_kit import post, route, serving


def told(request: Request) -> dict[str, object]:
    """Say what arrived."""
    return {"body": request.body.hex(), "fields": [(name.decode(), value.decode()) for name, value in request.fields]}


async def test_raw_body_is_not_inflated_and_another_is() -> None:
    packed = gzip.compress(b"hello")
    routes = [route(told, "POST", raw_body=True), route(told, "POST", "/plain")]
    async with serving(routes) as site:
        client = site.connect()
        client.send(post("/it", packed, "Content-Encoding: gzip") + post("/plain", packed, "Content-Encoding: gzip"))
        client.send(post("/it", b"x", "Content-Encoding: who-knows"))
        raw, plain, unknown = await client.answers(3)

    assert (raw.json()["body"], plain.json()["body"]) == (packed.hex(), b"hello".hex())
    assert unknown.json()["body"] == b"x".hex()


async def test_raw_body_that_arrives_in_pieces_is_not_inflated() -> None:
    packed = gzip.compress(bytes(1000))
    async with serving([route(told, "POST", raw_body=True)]) as site:
        client = site.connect()
        whole = post("/it", packed, "Content-Encoding: gzip")
        client.send(whole[:-5])
        client.send(whole[-5:])
        answer = await client.answer()

    assert answer.json()["body"] == packed.hex()


async def test_repeated_fields_are_given_one_by_one() -> None:
    async with serving([route(told, "POST")]) as site:
        client = site.connect()
        client.send(post("/it", b"", "X-Sig: a", "x-sig:  b ", "Other: c") + post("/it", b"", "X-Sig: a, b"))
        twice, joined = await client.answers(2)

    assert [value for name, value in twice.json()["fields"] if name == "x-sig"] == ["a", "b"]
    assert [value for name, value in joined.json()["fields"] if name == "x-sig"] == ["a, b"]
