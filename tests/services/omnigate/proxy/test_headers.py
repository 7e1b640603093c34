"""What passes the proxy and what does not: exactly one request arrives, with exactly the fields that were meant."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.net.message import Peer
from penstock.services.omnigate.proxy.headers import forwarded, may_be_allowed, relay_start, request_fields
from penstock.wire.http1.answer import AnswerHead, Framing
from penstock.wire.http1.request import RequestReader
from tests.net.server.listener_kit import get, settle
from tests.services.omnigate.proxy.kit import gateway, ok, says

PEER = Peer("192.0.2.7", 4711, None, secure=False)
HOST = "Host: localhost"


def passed_on(*lines: str, method: str = "GET") -> list[bytes]:
    """Return the field lines an upstream gets for these."""
    reader = RequestReader()
    reader.receive("\r\n".join([f"{method} /api HTTP/1.1", HOST, *lines, "", ""]).encode("latin-1"))
    head = reader.next_head()
    assert head is not None
    return request_fields(head, b"1.1 us").split(b"\r\n")[:-1]


OURS = [b"Via: 1.1 us"]


@pytest.mark.parametrize(
    "line",
    [
        "Connection: keep-alive",
        "Keep-Alive: timeout=5",
        "Proxy-Connection: keep-alive",
        "Proxy-Authorization: Basic eA==",
        "Proxy-Authenticate: Basic",
        "TE: trailers",
        "Trailer: X-Sum",
        "Upgrade: websocket",
        "HTTP2-Settings: AAMAAABkAAQAAP__",
        "Content-Length: 0",
        "Content-Encoding: gzip",
        "Expect: 100-continue",
        "Authorization: Bearer psp1_secret",
        "Forwarded: for=10.0.0.1",
        "X-Forwarded-For: 10.0.0.1",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Anything: x",
        "X-Real-IP: 10.0.0.1",
        "X-Penstock-Tenant: root",
        "True-Client-IP: 10.0.0.1",
        "X-Original-URL: /admin",
        "X-Rewrite-URL: /admin",
        "X-HTTP-Method-Override: DELETE",
        "X-Method-Override: DELETE",
        "X-Corr-ID: mine",
        "X-Deadline-Ms: 5",
        "X_Under: score",
        "Content_Type: text/plain",
        "Cookie: penstock_session_5300=secret",
    ],
)
def test_what_is_not_for_the_upstream_is_dropped(line: str) -> None:
    assert passed_on(line) == OURS


@pytest.mark.parametrize(
    "name", ["authorization", "x-thing", "accept", "cookie", "host", "content-length", "forwarded", "via"]
)
def test_a_field_named_by_connection_goes_no_further(name: str) -> None:
    given_lines = [f"Connection: close, {name}"]
    if name not in {"host", "content-length"}:
        given_lines.append(f"{name}: x")

    assert passed_on(*given_lines) == OURS


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("Accept: */*", b"accept: */*"),
        ("traceparent: 00-aa-bb-01", b"traceparent: 00-aa-bb-01"),
        ("X-Empty:", b"x-empty: "),
        ("Cookie: a=1; penstock_session=x; b=2", b"cookie: a=1; b=2"),
        ("Idempotency-Key: k", b"idempotency-key: k"),
        ("X-Text: caf\xe9", b"x-text: caf\xe9"),
        ("Range: bytes=0-1", b"range: bytes=0-1"),
    ],
)
def test_what_is_for_the_upstream_is_kept(line: str, kept: bytes) -> None:
    assert passed_on(line) == [kept, *OURS]


def test_the_way_a_request_came_is_kept_and_extended() -> None:
    assert passed_on("Via: 1.0 fred") == [b"Via: 1.0 fred, 1.1 us"]


@pytest.mark.parametrize(
    ("peer", "host", "said"),
    [
        (PEER, b"a.test", b"for=192.0.2.7;host=a.test;proto=http"),
        (Peer("2001:db8::1", 1, None, secure=True), b"a.test:81", b'for="[2001:db8::1]";host="a.test:81";proto=https'),
        (Peer("fe80::1%eth0", 1, None, secure=False), b"[::1]:80", b'for="[fe80::1]";host="[::1]:80";proto=http'),
        (Peer("", 0, 1000, secure=False), None, b"for=_local;host=unknown;proto=http"),
    ],
)
def test_forwarded_says_what_the_socket_showed(peer: Peer, host: bytes | None, said: bytes) -> None:
    assert forwarded(peer, host) == b"Forwarded: " + said + b"\r\n"


def answer_head(*fields: tuple[bytes, bytes], status: int = 200, length: int | None = 2) -> AnswerHead:
    framing = Framing.CHUNKED if length is None else Framing.LENGTH
    headers: dict[bytes, bytes] = {}
    for name, value in fields:
        headers[name] = headers[name] + b", " + value if name in headers else value
    return AnswerHead(status, fields, headers, framing, length)


@pytest.mark.parametrize(
    "name",
    [b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"proxy-authenticate",
    b"x-corr-id",
     b"x_under", b"x-penstock-admin"],
)  # fmt: skip
def test_what_an_upstream_says_to_us_alone_goes_no_further(name: bytes) -> None:
    assert relay_start(answer_head((name, b"x")), to_head=False) == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"


def test_an_upstream_that_names_its_own_fields_hop_by_hop_keeps_them_from_the_client() -> None:
    head = answer_head((b"connection", b"close, x-internal"), (b"x-internal", b"1"), (b"server", b"s"))

    assert relay_start(head, to_head=False) == b"HTTP/1.1 200 OK\r\nserver: s\r\nContent-Length: 2\r\n"


TRICKS = {
    "CL and TE": b"POST /api HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "TE and CL": b"POST /api HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    b"Content-Length: 4\r\n\r\n0\r\n\r\n",
    "two lengths": b"POST /api HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nContent-Length: 35\r\n\r\n",
    "equal lengths": b"POST /api HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab",
    "a list of lengths": b"POST /api HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2, 2\r\n\r\nab",
    "space before the colon": b"POST /api HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "folded": b"POST /api HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "obs-fold": b"GET /api HTTP/1.1\r\nHost: localhost\r\nX-A: b\r\n c: d\r\n\r\n",
    "xchunked": b"POST /api HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "gzip, chunked": b"POST /api HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": b"POST /api HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunked in 1.0": b"POST /api HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "look-alike": b"POST /api HTTP/1.1\r\nHost: localhost\r\nTransfer_Encoding: chunked\r\nContent-Length: 0\r\n\r\n",
    "bare LF": b"GET /api HTTP/1.1\nHost: localhost\n\n",
    "bare CR": b"GET /api HTTP/1.1\r\nHost: localhost\r\nX: a\rGET /evil HTTP/1.1\r\n\r\n",
    "NUL": b"GET /api HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n",
    "two hosts": b"GET /api HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n",
    "foreign authority": b"GET http://evil/api HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "dots": b"GET /api/../v1/passport HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "encoded dots": b"GET /api/%2e%2e/v1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "space in the target": b"GET /api/a HTTP/1.1 b HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "bad chunk": b"POST /api HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("trick", TRICKS.values(), ids=TRICKS)
async def test_an_ambiguous_request_is_refused_and_never_reaches_the_upstream_whole(trick: bytes) -> None:
    async with gateway() as gate:
        client = gate.connect()
        client.send(trick + get("/api/smuggled"))
        answers = await client.gone()

        assert len(answers) <= 1
        assert all(answer.status in {400, 501, 505} for answer in answers)
        upstream = gate.upstreams["up0.test"]
        assert not any(b"smuggled" in connection.raw for connection in upstream.connections)
        assert not any(b"smuggled" in raw or raw.endswith(b"0\r\n\r\n") for raw in upstream.requests)


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_an_upgrade_with_a_body_that_looks_like_a_request_is_one_request_upstream(framing: str) -> None:
    hidden = b"GET /api/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
    body = hidden if framing == "length" else b"%x\r\n%b\r\n0\r\n\r\n" % (len(hidden), hidden)
    line = b"Content-Length: %d" % len(hidden) if framing == "length" else b"Transfer-Encoding: chunked"
    start = b"POST /api HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n%b\r\n\r\n" % line

    def whole(connection, raw) -> None:
        if raw.endswith((hidden, b"0\r\n\r\n")):
            connection.next_request()
            connection.say(ok())

    async with gateway(whole) as gate:
        client = gate.connect()
        client.send(start + body)

        assert (await client.answer()).status == 200
        await settle()
        assert client.data == b""
        (raw,) = gate.upstreams["up0.test"].requests
        assert raw.startswith(b"POST /api HTTP/1.1\r\n")
        assert b"upgrade" not in raw.lower()


NAMES = st.from_regex(rb"[A-Za-z][A-Za-z0-9-]{0,12}", fullmatch=True)
VALUES = st.from_regex(rb"[!-~]([ -~]{0,20}[!-~])?", fullmatch=True)


@given(st.lists(st.tuples(NAMES, VALUES), max_size=8))
def test_whatever_a_client_sends_no_field_of_its_own_can_frame_or_authorise(pairs: list[tuple[bytes, bytes]]) -> None:
    reader = RequestReader()
    lines = b"".join(b"%b: %b\r\n" % pair for pair in pairs)
    reader.receive(b"GET /api HTTP/1.1\r\nHost: localhost\r\n" + lines + b"\r\n")
    try:
        head = reader.next_head()
    except Exception:  # noqa: BLE001 - refused by the listener: nothing is passed on
        return
    assert head is not None
    names = [line.partition(b":")[0] for line in request_fields(head, b"1.1 us").split(b"\r\n")[:-1]]

    ours = {b"host", b"content-length", b"transfer-encoding", b"connection", b"authorization", b"forwarded", b"via"}
    assert ours.isdisjoint(names)


async def test_our_fields_are_set_once_whatever_the_client_says() -> None:
    async with gateway(says(ok())) as gate:
        await gate.ask(
            get("/api", "X-Corr-ID: mine", "X-Deadline-Ms: 900", "Forwarded: for=1.2.3.4", "Connection: x-corr-id")
        )

        lines = gate.upstreams["up0.test"].requests[0].lower().split(b"\r\n")
        names = [line.partition(b":")[0] for line in lines]
        once = (b"host", b"x-corr-id", b"x-deadline-ms", b"forwarded", b"via")
        assert {name: names.count(name) for name in once} == {
            b"host": 1, b"x-corr-id": 1, b"x-deadline-ms": 1, b"forwarded": 1, b"via": 1,
        }  # fmt: skip
        assert b"x-corr-id: mine" in lines
        # 900 less what the way back takes, rounded down.
        assert {b"x-deadline-ms: 879", b"x-deadline-ms: 880"} & set(lines)


@pytest.mark.parametrize("path", ["/api/..;/admin", "/api/..;x=1/admin", "/api/.;/x", "/api/%2e%2e;/x", "/api/..%3b/x"])
async def test_a_dot_segment_with_a_parameter_is_refused_and_never_passed_on(path: str) -> None:
    async with gateway() as gate:
        answer = await gate.ask(get(path))

        assert answer.status == 400
        assert gate.upstreams["up0.test"].requests == []


@pytest.mark.parametrize("path", ["/api/a;b/c", "/api/x..;y", "/api/...;z"])
async def test_other_parameters_pass(path: str) -> None:
    async with gateway() as gate:
        assert (await gate.ask(get(path))).status == 200


BELIEVED = re.findall(
    r"\S+",
    """
remote-user x-remote-user x-authenticated-user x-ssl-client-cn x-client-cert cf-connecting-ip fastly-client-ip
x-original-uri x-override-url x-envoy-external-address forwarded-for x-forwarded-for x-forwarded-user x-forwarded
forwarded client-ip true-client-ip x-client-ip x-cluster-client-ip x-real-ip x-original-host x-original-url
x-rewrite-url x-http-method x-http-method-override x-method-override remote-addr x-remote-addr x-user x-user-id
x-username x-user-email x-user-roles x-user-name x-auth-user x-auth-email x-auth-request-user x-webauth-user
x-goog-authenticated-user-email x-ms-client-principal x-ms-client-principal-id x-amzn-oidc-identity x-amzn-oidc-data
cf-access-authenticated-user-email x-envoy-peer-metadata ssl-client-verify ssl-client-s-dn x-tls-client-subject
x-forwarded-client-cert x-arr-clientcert-ip client-cert x-certificate x-tenant x-tenant-id x-groups x-roles
impersonate-user x-impersonate-group x-principal x-identity x-email x-account-id x-peer-certificate x-host
x-originating-ip x-azure-clientip-ip x-source-ip x-appengine-user-ip x-login x-org-id
""",
)
ORDINARY = re.findall(
    r"\S+",
    """
accept accept-language user-agent x-user-agent cookie content-type if-none-match range referer origin x-requested-with
x-api-key x-auth-token x-csrf-token idempotency-key traceparent tracestate cache-control pragma priority dnt x-device-id
x-request-id x-session-token sec-fetch-site sec-fetch-user sec-ch-ua x-b3-traceid x-app-version x-client-version
x-shipping-zip x-script-name save-data upgrade-insecure-requests
""",
)


@pytest.mark.parametrize("name", BELIEVED)
def test_no_field_of_a_client_that_an_upstream_could_take_for_an_identity_passes(name: str) -> None:
    assert passed_on(f"{name}: root") == OURS
    assert passed_on(f"{name.title()}: root") == OURS


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_fields_pass(name: str) -> None:
    assert passed_on(f"{name}: x") == [f"{name}: x".encode(), *OURS]


def test_a_route_may_let_single_fields_through_but_none_that_is_ours() -> None:
    reader = RequestReader()
    reader.receive(b"GET /api HTTP/1.1\r\nHost: localhost\r\nX-Tenant-Id: 7\r\nX-User: root\r\n\r\n")
    head = reader.next_head()
    assert head is not None

    assert request_fields(head, b"1.1 us", frozenset({b"x-tenant-id"})) == b"x-tenant-id: 7\r\nVia: 1.1 us\r\n"
    for name in (b"authorization", b"forwarded", b"x-penstock-identity", b"host", b"connection", b"x_under"):
        assert not may_be_allowed(name)
