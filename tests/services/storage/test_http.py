"""The routes over real sockets: what they take, what they refuse, and what a refusal leaves behind."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import zlib

import pytest
import zstandard

from penstock.contracts.capability import Grant, RequestContext
from penstock.kernel.errors import Forbidden, Unauthenticated
from penstock.wire.ids import address_of
from tests.services.storage.worlds import served

pytestmark = pytest.mark.real_loop
DATA = b"hello world"
ADDRESS = address_of(DATA)
TAG = f'"{ADDRESS}"'
LARGE = bytes(range(251)) * 1100
OTHER = address_of(b"other")
NOISE = random.Random(1).randbytes(100_000)


class Listed:
    """A verifier that knows two tokens: one for everything, one for reading; it notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[RequestContext, int]] = []

    def verify(self, token: str, context: RequestContext, *, cost_bytes: int = 0) -> Grant:
        self.asked.append((context, cost_bytes))
        if token not in ("all", "reader"):
            raise Unauthenticated(reason="invalid")
        if token == "reader" and context.op != "get":
            raise Forbidden(reason="caveat:op")
        return Grant("me", "sub:me", "authed", "t", ("svc-storage",), 0)

    def check(self, grant: Grant, context: RequestContext) -> None:
        return None


class Late(Listed):
    """The same verdicts, but not at once: what a verifier does for crypto it has not cached."""

    async def _verdict(self, token: str, context: RequestContext, cost_bytes: int) -> Grant:
        await asyncio.sleep(0)
        return Listed.verify(self, token, context, cost_bytes=cost_bytes)

    def verify(self, token: str, context: RequestContext, *, cost_bytes: int = 0):
        return self._verdict(token, context, cost_bytes)


async def test_bytes_are_new_once_and_then_existed() -> None:
    async with served() as (_, http):
        first, again = await http.put(DATA), await http.put(DATA)
        named = await http.put(DATA, f"/o/{ADDRESS}")

        assert [first.status, again.status, named.status] == [201, 200, 200]
        assert json.loads(first.body) == {"address": ADDRESS, "size": 11, "existed": False}
        assert (first.headers["location"], first.headers["etag"]) == (f"/o/{ADDRESS}", TAG)


@pytest.mark.parametrize("data", [b"", b"x", DATA, LARGE[:65_536], LARGE[:65_537], LARGE], ids=len)
async def test_what_was_put_comes_back_with_length_and_tag(data: bytes) -> None:
    async with served() as (_, http):
        address = json.loads((await http.put(data)).body)["address"]
        got, head = await http.get(address), await http.ask("HEAD", f"/o/{address}")

        assert (got.status, got.body, got.headers["etag"]) == (200, data, f'"{address_of(data)}"')
        assert (head.status, head.headers["content-length"], head.body) == (200, str(len(data)), b"")
        assert head.headers["accept-ranges"] == "bytes"


# A request's fields, and what comes back of `hello world`.
CONDITIONS = [
    ({}, 200, DATA, None),
    ({"Range": "bytes=0-0"}, 206, b"h", "bytes 0-0/11"),
    ({"Range": "bytes=6-"}, 206, b"world", "bytes 6-10/11"),
    ({"Range": "bytes=6-99"}, 206, b"world", "bytes 6-10/11"),
    ({"Range": "bytes=-5"}, 206, b"world", "bytes 6-10/11"),
    ({"Range": "bytes=-99"}, 206, DATA, "bytes 0-10/11"),
    ({"Range": "bytes=0-10"}, 206, DATA, "bytes 0-10/11"),
    ({"Range": "BYTES=3-3"}, 206, b"l", "bytes 3-3/11"),
    ({"Range": "bytes=11-"}, 416, None, "bytes */11"),
    ({"Range": "bytes=-0"}, 416, None, "bytes */11"),
    ({"Range": "bytes=5-2"}, 416, None, "bytes */11"),
    ({"Range": "bytes=-"}, 416, None, "bytes */11"),
    ({"Range": "bytes=a-b"}, 416, None, "bytes */11"),
    ({"Range": "bytes=1"}, 416, None, "bytes */11"),
    ({"Range": f"bytes={'9' * 30}-"}, 416, None, "bytes */11"),
    ({"Range": "bytes=0-1,3-4"}, 200, DATA, None),
    ({"Range": "lines=0-1"}, 200, DATA, None),
    ({"Range": "bytes=0-3", "If-Range": TAG}, 206, b"hell", "bytes 0-3/11"),
    ({"Range": "bytes=0-3", "If-Range": f"W/{TAG}"}, 200, DATA, None),
    ({"Range": "bytes=0-3", "If-Range": f'"{OTHER}"'}, 200, DATA, None),
    ({"Range": "bytes=99-", "If-Range": f'"{OTHER}"'}, 200, DATA, None),
    ({"Range": "bytes=0-3", "If-Range": "Sun, 15 Nov 2026 00:00:00 GMT"}, 200, DATA, None),
    ({"If-None-Match": TAG}, 304, b"", None),
    ({"If-None-Match": f"W/{TAG}"}, 304, b"", None),
    ({"If-None-Match": f'"{OTHER}", {TAG}'}, 304, b"", None),
    ({"If-None-Match": "*"}, 304, b"", None),
    ({"If-None-Match": ADDRESS}, 200, DATA, None),
    ({"If-None-Match": f'"{OTHER}"'}, 200, DATA, None),
    ({"If-None-Match": TAG, "Range": "bytes=99-"}, 304, b"", None),
]


@pytest.mark.parametrize(("fields", "status", "body", "part"), CONDITIONS, ids=[str(row[0]) for row in CONDITIONS])
async def test_ranges_and_conditions(fields: dict[str, str], status: int, body: bytes | None, part: str | None) -> None:
    async with served() as (_, http):
        await http.put(DATA)
        got = await http.ask("GET", f"/o/{ADDRESS}", **fields)

        assert (got.status, got.headers.get("content-range")) == (status, part)
        assert body is None or got.body == body
        assert status == 416 or got.headers["etag"] == TAG
        assert status == 304 or got.headers["content-length"] == str(len(got.body))


async def test_any_range_of_a_large_object_is_its_slice() -> None:
    dice = random.Random(4)
    async with served() as (_, http):
        address = json.loads((await http.put(LARGE)).body)["address"]
        for _ in range(60):
            start = dice.randrange(len(LARGE))
            end = dice.choice([dice.randrange(start, len(LARGE)), (start // 65_536 + 1) * 65_536 - 1, len(LARGE) + 5])
            got = await http.get(address, Range=f"bytes={start}-{end}")

            assert (got.status, got.body) == (206, LARGE[start : end + 1])


async def test_head_ignores_ranges_and_obeys_conditions() -> None:
    async with served() as (_, http):
        await http.put(DATA)
        ranged = await http.ask("HEAD", f"/o/{ADDRESS}", Range="bytes=0-0")
        known = await http.ask("HEAD", f"/o/{ADDRESS}", If_None_Match=TAG)

        assert (ranged.status, ranged.headers["content-length"]) == (200, "11")
        assert known.status == 304


async def test_condition_on_an_object_that_is_not_there_is_404() -> None:
    async with served() as (_, http):
        for fields in ({"If_None_Match": TAG}, {"If_None_Match": "*"}, {"Range": "bytes=0-1"}):
            assert (await http.get(ADDRESS, **fields)).status == 404


BAD = [
    ("GET", "/o/b3:" + "0" * 64, {}, b"", 404, "not_found"),
    ("HEAD", "/o/b3:" + "0" * 64, {}, b"", 404, ""),
    ("GET", "/o/b3:" + "A" * 64, {}, b"", 400, "malformed"),
    ("GET", "/o/B3:" + "a" * 64, {}, b"", 400, "malformed"),
    ("GET", "/o/b3:" + "0" * 63, {}, b"", 400, "malformed"),
    ("GET", "/o/b3:" + "0" * 65, {}, b"", 400, "malformed"),
    ("GET", "/o/" + "0" * 64, {}, b"", 400, "malformed"),
    ("GET", "/o/b3:" + "0" * 64 + "%0A", {}, b"", 400, "malformed"),
    ("GET", "/o/..%2f..%2fetc", {}, b"", 400, "malformed"),
    ("GET", "/o/../tmp/1", {}, b"", 400, "malformed"),
    ("GET", "/o/tmp/1", {}, b"", 404, "not_found"),
    ("GET", "/o", {}, b"", 405, "unsupported"),
    ("DELETE", f"/o/{ADDRESS}", {}, b"", 405, "unsupported"),
    ("PUT", "/o/b3:" + "G" * 64, {}, DATA, 400, "malformed"),
    ("PUT", "/o/..%5c..", {}, DATA, 400, "malformed"),
    ("PUT", f"/o/{OTHER}", {}, DATA, 409, "conflict"),
    ("PUT", "/o", {"X-Expect-Addr": OTHER}, DATA, 409, "conflict"),
    ("PUT", "/o", {"X-Expect-Addr": "b3:1"}, DATA, 400, "malformed"),
    ("PUT", f"/o/{ADDRESS}", {"X-Expect-Addr": OTHER}, DATA, 409, "conflict"),
    ("PUT", "/o", {"Content-Range": "bytes 0-10/99"}, DATA, 400, "malformed"),
    ("PUT", "/o", {"Content-Encoding": "br"}, DATA, 415, "unsupported"),
    ("PUT", "/o", {"Content-Encoding": "gzip, gzip"}, DATA, 415, "unsupported"),
    ("PUT", "/o", {"Content-Encoding": "gzip"}, DATA, 400, "malformed"),
    ("PUT", "/o", {"Content-Encoding": "gzip"}, gzip.compress(NOISE)[:-9], 400, "malformed"),
    ("PUT", "/o", {"Content-Encoding": "gzip"}, gzip.compress(bytes(300_000)), 413, "over_limit"),
    ("PUT", "/o", {}, bytes((1 << 20) + 1), 413, "over_limit"),
    ("GET", f"/o/{ADDRESS}", {"Content-Length": "5"}, b"", 413, "over_limit"),
]


@pytest.mark.parametrize("row", BAD, ids=range(len(BAD)))
async def test_bad_input_is_refused_and_stores_nothing(row: tuple) -> None:
    method, path, fields, body, status, code = row
    async with served(put_bytes_max=1 << 20) as (service, http):
        got = await http.ask(method, path, body if method == "PUT" else None, **fields)

        assert got.status == status
        assert not code or json.loads(got.body)["code"] == code
        assert service.store.ledger.objects == 0


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("zstd", zstandard.ZstdCompressor().compress)],
)
async def test_encoded_body_is_stored_inflated(encoding: str, pack) -> None:
    data = NOISE + bytes(len(NOISE))
    async with served() as (_, http):
        stored = await http.put(pack(data), f"/o/{address_of(data)}", Content_Encoding=encoding)

        assert stored.status == 201
        assert (await http.get(address_of(data))).body == data


async def test_chunked_body_without_a_length_is_cut_at_the_cap() -> None:
    async with served(put_bytes_max=100_000) as (service, http):
        for pieces, status in ((1, 201), (3, 413)):
            reader, writer = await http.open()
            writer.write(b"PUT /o HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
            writer.write(b"%x\r\n%b\r\n" % (50_000, LARGE[:50_000]) * pieces + b"0\r\n\r\n")
            assert (await http.answer()).status == status
        assert service.store.ledger.objects == 1
        assert reader is not None


async def test_writing_needs_put_and_reading_needs_get() -> None:
    async with served(verifier=(verifier := Listed())) as (_, http):
        assert (await http.put(DATA)).status == 401
        assert (await http.put(DATA, Authorization="Bearer other")).status == 401
        assert (await http.put(DATA, Authorization="Bearer reader")).status == 403
        assert (await http.put(DATA, Authorization="Bearer all")).status == 201
        assert (await http.get(ADDRESS)).status == 401
        assert (await http.ask("HEAD", f"/o/{ADDRESS}")).status == 401
        assert (await http.get("b3:nonsense")).status == 401  # who may not ask learns nothing
        assert (await http.get(ADDRESS, Authorization="Bearer reader")).body == DATA

        context, cost_bytes = verifier.asked[2]
        assert (context.aud, context.op, context.method, context.route) == ("svc-storage", "put", "PUT", "/o")
        assert cost_bytes == len(DATA)


@pytest.mark.parametrize(
    ("method", "fields", "status"),
    [
        ("PUT", "", b"401"),
        ("PUT", "Authorization: Bearer other\r\n", b"401"),
        ("PUT", "Authorization: Bearer reader\r\n", b"403"),
        ("GET", "", b"401"),
        ("GET", "Authorization: Bearer reader\r\n", b"413"),
    ],
)
@pytest.mark.parametrize("kind", [Listed, Late])
async def test_bearer_is_judged_before_the_body_is_there(kind, method: str, fields: str, status: bytes) -> None:
    async with served(verifier=kind()) as (service, http):
        reader, writer = await http.open()
        start = f"{method} /o/{ADDRESS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n{fields}\r\n"
        writer.write(start.encode())  # and not a byte of the body

        assert (await reader.readline())[9:12] == status
        assert (service.store.puts.in_use, service.store.ledger.reserved_bytes) == (0, 0)


async def test_verdict_that_comes_late_is_obeyed_too() -> None:
    async with served(verifier=Late()) as (service, http):
        assert (await http.put(DATA, Authorization="Bearer reader")).status == 403
        assert service.store.ledger.objects == 0
        assert (await http.put(LARGE, Authorization="Bearer all")).status == 201
        assert (await http.get(address_of(LARGE), Authorization="Bearer reader")).body == LARGE


async def test_body_of_unknown_length_is_charged_as_the_largest() -> None:
    async with served(verifier=(verifier := Listed()), put_bytes_max=1 << 20) as (_, http):
        await http.put(gzip.compress(DATA), Content_Encoding="gzip", Authorization="Bearer all")

        assert verifier.asked[0][1] == 1 << 20


async def test_public_read_opens_reading_and_nothing_else() -> None:
    async with served(verifier=Listed(), public_read=True) as (service, http):
        await http.put(DATA, Authorization="Bearer all")
        got = await http.get(ADDRESS)

        assert (got.status, got.body) == (200, DATA)
        assert got.headers["cache-control"].startswith("public")
        assert (await http.put(b"more")).status == 401
        assert {(route.method, route.open) for route in service.routes} == {("PUT", False), ("GET", True)}


async def test_refusal_comes_before_the_body_is_asked_for() -> None:
    async with served(bytes_max=1000) as (service, http):
        _, writer = await http.open()
        writer.write(b"PUT /o HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 5000\r\n\r\n")
        reader, _ = await http.open()
        first = await reader.readline()

        assert first.startswith(b"HTTP/1.1 507")
        assert service.store.ledger.refused == 1


async def test_every_metric_of_the_service_is_declared_and_moves() -> None:
    async with served() as (service, http):
        for data in (DATA, DATA, LARGE):
            await http.put(data)
        await http.get(ADDRESS)
        await http.get(address_of(LARGE))
        value = service.store.inventory.metrics.value

        assert (value("puts_total", outcome="new"), value("puts_total", outcome="existed")) == (2, 1)
        assert value("object_bytes_in_total") == value("object_bytes_out_total") == len(DATA) + len(LARGE)
        assert (value("storage_objects"), value("storage_bytes")) == (2, len(DATA) + len(LARGE))
        assert value("commit_seconds") == 2  # what is there already and in memory needs no commit


async def test_openapi_names_every_route() -> None:
    async with served() as (_, http):
        page = json.loads((await http.ask("GET", "/openapi.json")).body)

        assert set(page["paths"]["/o"]) == {"put"}
        assert set(page["paths"]["/o/{addr}"]) == {"put", "get"}
        assert page["paths"]["/o/{addr}"]["get"]["x-penstock-op"] == "get"
