"""What a browser meets: guarded files that may be kept, sessions by cookie, and a stream that is bounded and ends."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import penstock.admin
from penstock.admin.authority import OperatorOnly
from penstock.admin.page import OperatorPage
from penstock.admin.publisher import VIEWERS_MAX, Publisher
from penstock.kernel.child import ChildSpec
from penstock.kernel.clock import LoopClock
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from tests.net.server.listener_kit import (
    Answer,
    RawClient,
    Site,
    get,
    post,
    serving,
    settle,
)

STATIC = Path(penstock.admin.__file__).parent / "static"
IMPORTED = re.compile(r'^(?:import|\}).*"\./(\w+\.js)";$', re.MULTILINE)
TOKEN = "psp1_not-a-real-token-just-forty-characters-long"
DESCRIBED = {"svc-x": {"openapi": "3.1.0", "info": {"version": "1"}, "paths": {"/v1/x": {"get": {"summary": "Look."}}}}}


@dataclass
class Admin:
    """A page on a listener in memory."""

    site: Site
    publisher: Publisher
    authority: OperatorOnly

    async def ask(self, request: bytes) -> Answer:
        client = self.site.connect()
        client.send(request)
        return await client.answer()

    async def known(self, path: str, answer: Answer) -> int:
        """Ask again as a browser that has it; return the status."""
        client = self.site.connect()
        client.send(get(path, f"If-None-Match: {answer.headers[b'etag'].decode()}"))
        (again,) = await client.answers(1, heads_only=[0])
        return again.status

    async def sign_in(self) -> str:
        """Return the field that carries a session."""
        answer = await self.ask(post("/login", json.dumps({"token": TOKEN}).encode()))
        return "Cookie: " + answer.headers[b"set-cookie"].decode().partition(";")[0]

    async def watch(self, *fields: str, accept: str = "text/event-stream") -> RawClient:
        client = self.site.connect()
        client.send(get("/events/stream", f"Accept: {accept}", *fields))
        await settle(50)
        return client


@asynccontextmanager
async def admin(**options: float) -> AsyncIterator[Admin]:
    inventory = Inventory("node", LoopClock())
    publisher = Publisher(inventory, lambda number: {"number": number, "padding": "x" * 60_000})
    loop = asyncio.get_running_loop()
    authority = OperatorOnly(lambda: TOKEN, open_metrics=lambda: False, now=loop.time)
    page = OperatorPage(authority, publisher, lambda: DESCRIBED)
    boss = Supervisor(inventory, [ChildSpec("page_publisher", publisher.run)])
    await boss.start()
    try:
        async with serving(page.routes(), options=dict(options), admission=authority) as site:
            yield Admin(site, publisher, authority)
    finally:
        await boss.drain()


def named_in(html: bytes) -> list[str]:
    """List the addresses of the files that a page names."""
    return ["/assets/" + part.partition(b'"')[0].decode() for part in html.split(b'"/assets/')[1:]]


async def test_the_page_and_its_files_are_guarded_and_name_nothing_from_elsewhere() -> None:
    async with admin() as here:
        shell = await here.ask(get("/"))
        folder = named_in(shell.body)[0].rpartition("/")[0]
        files = [each.name for each in STATIC.iterdir() if each.name != "page.html"]
        answers = [shell, *[await here.ask(get(f"{folder}/{name}")) for name in files]]

    assert {each.rpartition("/")[2] for each in named_in(shell.body)} <= set(files)
    for answer in answers:
        assert answer.status == 200
        assert b"default-src 'none'; script-src 'self'" in answer.headers[b"content-security-policy"]
        assert b"unsafe" not in answer.headers[b"content-security-policy"]
        assert answer.headers[b"x-content-type-options"] == b"nosniff"
        # The name of SVG is no address, and examples for the reader are of his own machine.
        named = re.sub(rb"http://(www\.w3\.org/2000/svg|127\.0\.0\.1:8000)", b"", answer.body)
        assert named.count(b"://") == 0
    assert b"<script>" not in shell.body
    assert b"style=" not in shell.body


async def test_a_browser_keeps_the_files_and_asks_again_for_the_page() -> None:
    async with admin() as here:
        shell = await here.ask(get("/"))
        path = named_in(shell.body)[0]
        file = await here.ask(get(path))
        again = [await here.known("/", shell), await here.known(path, file)]
        other = await here.ask(get("/", 'If-None-Match: "other"'))
        # A page of another version must not get this version's files: they might not fit together.
        unknown = [await here.ask(get(f"/assets/{each}")) for each in ("0123456789abcdef/page.css", "x/page.html")]

    assert shell.headers[b"cache-control"] == b"no-cache"
    assert b"immutable" in file.headers[b"cache-control"]
    assert again == [304, 304]
    assert other.status == 200
    assert [each.status for each in unknown] == [404, 404]


async def test_signing_in_opens_the_stream_and_signing_out_shuts_it() -> None:
    async with admin() as here:
        session = await here.sign_in()
        client = await here.watch(session)
        assert b'event: state\ndata: {"number":1' in client.data
        out = await here.ask(post("/logout", b"", session))
        await asyncio.sleep(1.1)
        assert b'"why":"signed_out"' in client.data
        refused = await here.ask(get("/events/stream", session))

    assert (out.status, refused.status) == (204, 401)
    assert b"Max-Age=0" in out.headers[b"set-cookie"]


async def test_a_link_works_once_and_a_wrong_secret_is_told_so() -> None:
    async with admin() as here:
        once = json.dumps({"once": here.authority.make_link()}).encode()
        answers = [await here.ask(post("/login", body)) for body in (once, once, b'{"token":"wrong"}', b"{}")]

    assert [answer.status for answer in answers] == [204, 401, 401, 401]
    assert answers[1].json()["detail"] == "This link was used before, or is too old."
    assert answers[2].json()["detail"] == "This is not the operator token."


@pytest.mark.parametrize(
    "fields", [("Origin: http://evil.example",), ("Sec-Fetch-Site: cross-site",), ("Origin: http://localhost:9",)]
)
async def test_another_site_can_neither_sign_in_nor_watch(fields: tuple[str, ...]) -> None:
    async with admin() as here:
        session = await here.sign_in()
        login = await here.ask(post("/login", json.dumps({"token": TOKEN}).encode(), *fields))
        stream = await here.watch(session, *fields)
        disguised = await here.watch(session, *fields, accept="*/*")

        assert here.publisher.places.in_use == 0
        assert login.status == 403
        assert stream.data.startswith(b"HTTP/1.1 403 ")
        assert disguised.data.startswith(b"HTTP/1.1 401 ")


async def test_nobody_watches_without_a_session() -> None:
    async with admin() as here:
        answer = await here.ask(get("/events/stream", "Accept: text/event-stream"))

    assert (answer.status, answer.json()["code"]) == (401, "unauthenticated")


async def test_one_viewer_too_many_gets_429_and_a_closed_page_gives_its_place_back() -> None:
    async with admin() as here:
        session = await here.sign_in()
        clients = [await here.watch(session) for _ in range(VIEWERS_MAX)]
        refused = await here.ask(get("/events/stream", session))
        clients[0].transport.abort()
        await asyncio.sleep(1.1)
        again = await here.watch(session)

        assert refused.status == 429
        assert int(refused.headers[b"retry-after"]) >= 1
        assert b"event: state" in again.data


async def test_a_viewer_that_does_not_read_is_cut_at_the_write_deadline() -> None:
    async with admin(write_timeout_s=5.0) as here:
        session = await here.sign_in()
        client = here.site.connect()
        client.transport.pause_reading()
        client.send(get("/events/stream", session))
        await asyncio.sleep(0.5)
        assert here.publisher.places.in_use == 1
        await asyncio.sleep(15)

        assert here.publisher.places.in_use == 0
        assert here.site.count("io_timeouts_total", op="write") == 1


async def test_the_last_words_end_every_stream_so_that_the_listener_becomes_quiet() -> None:
    async with admin() as here:
        session = await here.sign_in()
        clients = [await here.watch(session) for _ in range(3)]
        here.publisher.end()
        here.site.listener.stop_intake()
        await here.site.listener.quiet()
        await settle()

        assert here.publisher.places.in_use == 0
        assert all(client.data.rstrip().endswith(b"0") for client in clients)
        assert all(b'"why":"stopped"' in client.data for client in clients)


async def test_asking_for_the_head_of_the_stream_takes_no_place_for_good() -> None:
    async with admin() as here:
        session = await here.sign_in()
        client = here.site.connect()
        client.send(get("/events/stream", session).replace(b"GET", b"HEAD"))
        await client.answers(1, heads_only=[0])
        await settle(50)

        assert here.publisher.places.in_use == 0


async def test_the_descriptions_need_a_session_and_send_others_to_sign_in() -> None:
    async with admin() as here:
        session = await here.sign_in()
        away = [await here.ask(get(path)) for path in ("/docs", "/docs/svc-x")]
        paths = ("/docs", "/docs/svc-x", "/docs/x", "/docs/other")
        index, one, short, none = [await here.ask(get(path, session)) for path in paths]

    assert [(answer.status, answer.headers[b"location"]) for answer in away] == [(303, b"/")] * 2
    assert b'href="/docs/svc-x"' in index.body
    assert b"/v1/x" in one.body
    assert short.body == one.body
    assert one.headers[b"x-content-type-options"] == b"nosniff"
    assert none.status == 404


async def test_files_come_compressed_to_who_can_read_that_and_the_whole_page_is_small() -> None:
    async with admin() as here:
        shell = await here.ask(get("/", "Accept-Encoding: br, gzip"))
        paths = named_in(gzip.decompress(shell.body))
        packed = [await here.ask(get(path, "Accept-Encoding: gzip")) for path in paths]
        plain = [await here.ask(get(path, "Accept-Encoding: gzip;q=0")) for path in paths]

    assert [gzip.decompress(each.body) for each in packed] == [each.body for each in plain]
    assert {each.headers[b"content-encoding"] for each in packed} == {b"gzip"}
    assert [each for each in plain if b"content-encoding" in each.headers] == []
    assert all(one.headers[b"etag"] != other.headers[b"etag"] for one, other in zip(packed, plain, strict=True))
    assert len(shell.body) + sum(len(each.body) for each in packed) < 24_000


def imported_by(name: str) -> set[str]:
    """Follow the imports that a browser loads at once; those of `import()` come when a view is opened."""
    found, more = set(), {name}
    while more:
        found |= more
        more = {each for file in more for each in IMPORTED.findall((STATIC / file).read_text("utf-8"))} - found
    return found


def test_the_page_names_every_script_of_the_first_look_so_that_none_waits_for_another() -> None:
    html = (STATIC / "page.html").read_text("utf-8")

    assert set(re.findall(r'"(\w+\.js)"', html)) == imported_by("page.js")


def test_no_text_of_the_page_names_a_variable_of_its_script() -> None:
    # A renaming of variables once went into sentences too.
    texts = [
        (each.name, text)
        for each in STATIC.glob("*.js")
        for text in re.findall(r'"[^"\n]*"', each.read_text("utf-8"))
        if re.search(r"\b(page\.[a-z]|undefined|\[object)", text)
    ]

    assert texts == []
