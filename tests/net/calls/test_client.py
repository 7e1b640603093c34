"""The client's calls: what goes out, what comes back, and what is refused, against scripted peers in memory."""

from __future__ import annotations

import pytest

from penstock.kernel.errors import Canceled, DownstreamUnavailable, Malformed
from penstock.net.calls.origin import HttpOrigin, parse_url
from tests.net.calls.peers import (
    URL,
    Peer,
    answer,
    hangs_up,
    in_turn,
    make_client,
    says,
    turns,
)

OK = b"HTTP/1.1 200 OK\r\n"


# --- what goes out


async def test_get_brings_status_headers_and_body() -> None:
    peer = Peer(says(answer(b'{"n":1}', "200 OK", "Content-Type: application/json")))
    async with make_client(peer) as client:
        got = await client.request("GET", URL + "?a=b", headers=[(b"Accept", b"application/json")], corr_id="c-1")

    seen = peer.seen[0]
    assert (got.status, got.json(), got.headers[b"content-type"]) == (200, {"n": 1}, b"application/json")
    assert (seen.method, seen.target, seen.body) == ("GET", "/things?a=b", b"")
    assert (seen.headers[b"host"], seen.headers[b"x-corr-id"]) == (b"peer.test", b"c-1")
    assert b"content-length" not in seen.headers


@pytest.mark.parametrize("size", [0, 1, 64 * 1024, 64 * 1024 + 1, 300_000])
async def test_bodies_of_every_size_arrive_whole(size: int) -> None:
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    peer = Peer()
    async with make_client(peer) as client:
        await client.request("POST", URL, body=body)

    assert peer.seen[0].body == body
    assert peer.seen[0].headers[b"content-length"] == str(size).encode()


async def pieces(*parts: bytes):
    for part in parts:
        yield part


async def test_streamed_body_goes_out_chunked_and_empty_pieces_do_not_end_it() -> None:
    peer = Peer()
    async with make_client(peer) as client:
        await client.request("POST", URL, body=pieces(b"one ", b"", b"two ", b"x" * 200_000))

    assert peer.seen[0].body == b"one two " + b"x" * 200_000
    assert peer.seen[0].headers[b"transfer-encoding"] == b"chunked"


async def test_streamed_body_of_known_length_goes_out_with_that_length() -> None:
    peer = Peer()
    async with make_client(peer) as client:
        await client.request("PUT", URL, body=pieces(b"one ", b"two"), body_bytes=7)
        await client.request("GET", URL)

    assert (peer.seen[0].body, peer.seen[0].headers[b"content-length"]) == (b"one two", b"7")
    assert peer.accepted == 1


@pytest.mark.parametrize("declared", [6, 8])
async def test_streamed_body_of_another_length_is_an_error_and_costs_the_connection(declared: int) -> None:
    peer = Peer()
    async with make_client(peer) as client:
        with pytest.raises(Malformed):
            await client.request("PUT", URL, body=pieces(b"one ", b"two"), body_bytes=declared)
        await turns()

        assert (peer.open, client.connections) == ([], 0)


async def test_error_of_the_body_source_reaches_the_caller_and_costs_the_connection() -> None:
    async def source():
        yield b"one"
        raise KeyError("source")

    peer = Peer()
    async with make_client(peer) as client:
        with pytest.raises(KeyError):
            await client.request("POST", URL, body=source())
        await turns()

        assert (peer.open, client.connections) == ([], 0)


@pytest.mark.parametrize(
    "field",
    [
        (b"A", b"x\r\nB: y"),
        (b"A\r\nB", b"x"),
        (b"A", b"x\x00"),
        (b"A", b"x\n"),
        (b"", b"x"),
        (b"A ", b"x"),
        (b"A:", b"x"),
    ],
)
async def test_a_field_cannot_smuggle_another(field: tuple[bytes, bytes]) -> None:
    peer = Peer()
    async with make_client(peer) as client:
        with pytest.raises(Malformed):
            await client.request("GET", URL, headers=[field])

    assert peer.accepted == 0


@pytest.mark.parametrize("name", [b"Content-Length", b"transfer-encoding", b"Connection", b"Upgrade", b"Expect"])
async def test_framing_fields_belong_to_the_client(name: bytes) -> None:
    async with make_client(Peer()) as client:
        with pytest.raises(ValueError, match="itself"):
            await client.request("GET", URL, headers=[(name, b"1")])


@pytest.mark.parametrize("method", ["get", "GE T", "", "GET\r\n", "CONNECT"])
async def test_methods_are_checked(method: str) -> None:
    async with make_client(Peer()) as client:
        with pytest.raises(Malformed):
            await client.request(method, URL)


@pytest.mark.parametrize("corr_id", ["", "x" * 65, "a\r\nb", "ü"])
async def test_corr_id_is_checked(corr_id: str) -> None:
    async with make_client(Peer()) as client:
        with pytest.raises(Malformed):
            await client.request("GET", URL, corr_id=corr_id)


async def test_callers_own_host_replaces_the_origins() -> None:
    peer = Peer()
    async with make_client(peer) as client:
        await client.request("GET", URL, headers=[(b"A", b"b"), (b"host", b"other.test")])

    assert peer.seen[0].headers[b"host"] == b"other.test"


# --- urls


@pytest.mark.parametrize(
    ("url", "origin", "target"),
    [
        ("http://a", HttpOrigin("http", "a", 80, b"a"), "/"),
        ("http://A.test:80/x?y=%2F", HttpOrigin("http", "a.test", 80, b"a.test"), "/x?y=%2F"),
        ("https://a:8443?q", HttpOrigin("https", "a", 8443, b"a:8443"), "/?q"),
        ("http://[::1]:5300/", HttpOrigin("http", "::1", 5300, b"[::1]:5300"), "/"),
        ("unix:/run/a.sock", HttpOrigin("unix", "/run/a.sock", 0, b"localhost"), "/"),
        ("unix:/run/a.sock:/v1/x?y", HttpOrigin("unix", "/run/a.sock", 0, b"localhost"), "/v1/x?y"),
    ],
)
def test_urls_name_an_origin_and_a_target(url: str, origin: HttpOrigin, target: str) -> None:
    assert parse_url(url) == (origin, target)


@pytest.mark.parametrize(
    "url",
    [
        "", "a", "/x", "ftp://a/", "http:/a", "http://", "http:///x", "http://u@a/", "http://a:0/", "http://a:65536/",
        "http://a:x/", "http://a b/", "http://a/ b", "http://a/\r\nX: y", "http://a/#f", "http://a/%", "http://a/%zz",
        "http://a/ü", "http://-a/", "http://a/\\", "unix:", "unix:relative", "unix:/a/", "unix:/a:x y", "http://[a/",
    ],
)  # fmt: skip
def test_everything_else_is_no_url(url: str) -> None:
    with pytest.raises(Malformed):
        parse_url(url)


# --- what comes back


async def test_connection_is_used_again_after_length_chunks_head_204_and_hints() -> None:
    peer = Peer(
        in_turn(
            says(answer()),
            says(OK, b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
            says(OK, b"Content-Length: 5000\r\n\r\n"),
            says(b"HTTP/1.1 204 No Content\r\nContent-Length: 7\r\n\r\n"),
            says(b"HTTP/1.1 103 Early Hints\r\n\r\n", answer()),
        )
    )
    async with make_client(peer) as client:
        bodies = [(await client.request(method, URL)).body for method in ("GET", "GET", "HEAD", "GET", "GET")]

    assert bodies == [b"ok", b"ok", b"", b"", b"ok"]
    assert peer.accepted == 1


async def test_answer_that_ends_with_the_connection_is_whole_and_its_last() -> None:
    def script(connection, _) -> None:
        connection.send(OK, b"\r\n", b"until the end")
        connection.hang_up()

    peer = Peer(script)
    async with make_client(peer) as client:
        bodies = [(await client.request("GET", URL)).body for _ in range(2)]

    assert (bodies, peer.accepted) == ([b"until the end"] * 2, 2)


@pytest.mark.parametrize(
    "sent",
    [
        OK + b"Content-Length: 9\r\n\r\nhello",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200",
        b"",
    ],
)
async def test_a_cut_answer_is_a_bad_gateway(sent: bytes) -> None:
    def script(connection, _) -> None:
        connection.send(sent)
        connection.hang_up()

    async with make_client(Peer(script), tries_max=1) as client:
        with pytest.raises(DownstreamUnavailable) as caught:
            await client.request("GET", URL)

    assert caught.value.status == 502


@pytest.mark.parametrize(
    "sent",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 9,
        OK + b"A: " + b"x" * 40_000,
    ],
)
async def test_garbage_is_a_bad_gateway_and_costs_the_connection(sent: bytes) -> None:
    peer = Peer(says(sent))
    async with make_client(peer, tries_max=1) as client:
        with pytest.raises(DownstreamUnavailable) as caught:
            await client.request("GET", URL)
        await turns()

        assert (caught.value.status, peer.open, client.connections) == (502, [], 0)


async def test_nobody_there_is_unavailable_without_the_address() -> None:
    peer = Peer(refuses=ConnectionRefusedError(111, "Connect call failed ('10.1.2.3', 80)"))
    async with make_client(peer, tries_max=1) as client:
        with pytest.raises(DownstreamUnavailable) as caught:
            await client.request("GET", URL)

        assert (caught.value.status, client.connections) == (503, 0)
        assert caught.value.detail == "peer is out of reach: Connection refused."


async def test_peer_that_speaks_first_is_not_believed() -> None:
    peer = Peer(greeting=answer(b"unasked"))
    async with make_client(peer, tries_max=1) as client:
        with pytest.raises(DownstreamUnavailable) as caught:
            await client.request("POST", URL)

        assert (caught.value.status, peer.seen, client.connections) == (502, [], 0)


async def test_bytes_beyond_the_answer_end_the_connection_but_not_the_answer() -> None:
    peer = Peer(says(answer(), answer(b"unasked")))
    async with make_client(peer) as client:
        bodies = [(await client.request("GET", URL)).body for _ in range(2)]

    assert (bodies, peer.accepted) == ([b"ok", b"ok"], 2)


async def test_bytes_on_an_idle_connection_close_it() -> None:
    peer = Peer()
    async with make_client(peer) as client:
        await client.request("GET", URL)
        peer.open[0].send(answer(b"unasked"))
        await turns()

        assert (client.connections, peer.open) == (0, [])
        assert (await client.request("GET", URL)).body == b"ok"


async def test_too_large_an_answer_is_refused_by_its_length_and_by_its_bytes_and_not_asked_again() -> None:
    chunked = OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"3e8\r\n" + b"x" * 1000 + b"\r\n0\r\n\r\n"
    for sent in (answer(b"x" * 1000), chunked):
        peer = Peer(says(sent))
        async with make_client(peer, body_bytes_max=999) as client:
            with pytest.raises(DownstreamUnavailable) as caught:
                await client.request("GET", URL)

        assert (caught.value.status, caught.value.facts["limit"], len(peer.seen)) == (502, "answer_bytes", 1)


async def test_json_that_is_not_what_was_asked_for_is_a_bad_gateway() -> None:
    async with make_client(Peer(says(answer(b'{"n":"x"}')))) as client:
        got = await client.request("GET", URL)

    for kind in (int, dict[str, int]):
        with pytest.raises(DownstreamUnavailable) as caught:
            got.json(kind)
        assert caught.value.status == 502


@pytest.mark.parametrize("status", ["400 Bad Request", "404 Not Found", "500 Internal Server Error"])
async def test_a_status_is_an_answer_not_an_error(status: str) -> None:
    async with make_client(Peer(says(answer(b"no", status)))) as client:
        got = await client.request("GET", URL)

    assert (got.status, got.body) == (int(status[:3]), b"no")


async def test_early_refusal_stops_the_upload() -> None:
    def refuse(connection, _) -> None:
        connection.transport.pause_reading()
        connection.send(answer(b"too large", "413 Content Too Large"))

    peer = Peer(refuse, at_head=True)
    async with make_client(peer) as client:
        got = await client.request("POST", URL, body=b"x" * 10_000_000)
        await turns()

        assert (got.status, got.body) == (413, b"too large")
        assert (client.connections, peer.open) == (0, [])


# --- ending


async def test_closed_client_refuses_calls_and_closes_twice() -> None:
    client = make_client(Peer())
    await client.request("GET", URL)
    await client.close()
    await client.close()

    with pytest.raises(Canceled):
        await client.request("GET", URL)
    assert client.connections == 0


async def test_hanging_up_unanswered_on_a_new_connection_is_not_replayed_for_a_post() -> None:
    peer = Peer(hangs_up)
    async with make_client(peer) as client:
        with pytest.raises(DownstreamUnavailable):
            await client.request("POST", URL, body=b"x")

    assert (len(peer.seen), peer.accepted) == (1, 1)
