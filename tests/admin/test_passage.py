"""The passage: the page's session reaches a service's own API with the operator's capability, and nothing else does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.admin.authority import OperatorOnly
from penstock.admin.page import OperatorPage
from penstock.admin.passage import Passage
from penstock.admin.publisher import Publisher
from penstock.kernel.errors import Conflict
from penstock.kernel.inventory import Inventory
from penstock.net.message import Request, Response
from penstock.net.server.listener import Listener
from penstock.net.server.listener_options import ListenerOptions
from penstock.net.server.route import Route
from tests.net.server.listener_kit import Answer, Site, get, post, serving

TOKEN = "psp1_not-a-real-token-just-forty-characters-long"


def echoed(request: Request) -> Response:
    """Tell what arrived."""
    said = {
        "method": request.method,
        "path": request.path,
        "query": request.query.decode(),
        "authorization": request.headers.get(b"authorization", b"").decode(),
        "cookie": request.headers.get(b"cookie", b"").decode(),
        "kind": request.headers.get(b"content-type", b"").decode(),
        "corr_id": request.corr_id,
        "body": request.body.decode(),
    }
    return Response(200, json.dumps(said).encode(), headers=[(b"ETag", b'"x"'), (b"X-Other", b"y")])


def refused(_request: Request) -> None:
    raise Conflict("It is taken.")


@asynccontextmanager
async def behind(token: str = TOKEN) -> AsyncIterator[Site]:
    """An admin listener in memory before a real service on a socket."""
    routes = [Route(method=method, path="/v1/{rest*}", handler=echoed) for method in ("GET", "POST", "PUT", "DELETE")]
    routes.append(Route(method="POST", path="/taken", handler=refused))
    service = Listener(Inventory("svc-x"), ListenerOptions(host="127.0.0.1", port=0), routes)
    await service.start()
    inventory = Inventory("node")
    door = {"url": f"http://127.0.0.1:{service.port}", "certificate": None}
    passage = Passage(inventory, lambda: {"x": door, "far": {"url": None, "certificate": None}}, lambda: token)
    authority = OperatorOnly(lambda: TOKEN, open_metrics=lambda: False)
    page = OperatorPage(authority, Publisher(inventory, lambda number: {"number": number}), dict)
    try:
        async with serving([*page.routes(), *passage.routes()], admission=authority) as site:
            yield site
    finally:
        await passage.close()
        await service.close()


async def ask(site: Site, request: bytes) -> Answer:
    client = site.connect()
    client.send(request)
    return await client.answer()


async def session(site: Site) -> str:
    answer = await ask(site, post("/login", json.dumps({"token": TOKEN}).encode()))
    return "Cookie: " + answer.headers[b"set-cookie"].decode().partition(";")[0]


@pytest.mark.real_loop
async def test_a_session_reaches_the_service_as_the_operator_and_its_cookie_stays_here() -> None:
    async with behind() as site:
        answer = await ask(site, get("/api/x/v1/topics/a%2Fb?limit=2", await session(site), "X-Corr-ID: c-1"))

    said = json.loads(answer.body)
    assert (answer.status, said["path"], said["query"]) == (200, "/v1/topics/a%2Fb", "limit=2")
    assert said["authorization"] == f"Bearer {TOKEN}"
    assert (said["cookie"], said["corr_id"]) == ("", "c-1")
    assert answer.headers[b"etag"] == b'"x"'
    assert b"x-other" not in answer.headers


@pytest.mark.real_loop
async def test_a_body_and_its_kind_are_passed_on_and_a_refusal_comes_back_as_it_is() -> None:
    async with behind() as site:
        cookie = await session(site)
        sent = await ask(site, post("/api/x/v1/send", b'{"a":1}', cookie, "Content-Type: application/json"))
        conflict = await ask(site, post("/api/x/taken", b"", cookie))

    said = json.loads(sent.body)
    assert (said["method"], said["kind"], said["body"]) == ("POST", "application/json", '{"a":1}')
    assert (conflict.status, json.loads(conflict.body)["detail"]) == (409, "It is taken.")


@pytest.mark.real_loop
@pytest.mark.parametrize(
    ("path", "fields", "status"),
    [
        ("/api/x/v1/y", (), 401),
        ("/api/x/v1/y", ("Authorization: Bearer psp1_wrong",), 401),
        ("/api/nobody/v1/y", (f"Authorization: Bearer {TOKEN}",), 404),
        ("/api/far/v1/y", (f"Authorization: Bearer {TOKEN}",), 503),
    ],
)
async def test_strangers_and_unknown_services_get_nothing(path: str, fields: tuple[str, ...], status: int) -> None:
    async with behind() as site:
        assert (await ask(site, get(path, *fields))).status == status


@pytest.mark.real_loop
async def test_a_session_is_not_believed_from_another_page() -> None:
    async with behind() as site:
        cookie = await session(site)
        answers = [
            await ask(site, post("/api/x/v1/send", b"{}", cookie, foreign))
            for foreign in ("Origin: http://evil.example", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site")
        ]

    assert [answer.status for answer in answers] == [403, 403, 403]
