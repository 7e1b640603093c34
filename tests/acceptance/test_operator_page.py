"""The operator's page on a real node, without a browser: who gets in, what a session allows, how a stream ends."""

from __future__ import annotations

import http.client
import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest

from tests.acceptance.node_process import NodeProcess


@pytest.fixture(scope="module")
def node() -> Iterator[NodeProcess]:
    with NodeProcess() as running:
        yield running


def once(node: NodeProcess) -> str:
    return node.page_link().partition("#once=")[2]


def test_the_ready_line_says_where_the_page_is_and_has_no_secret_of_a_link(node: NodeProcess) -> None:
    """It is often kept in a log."""
    assert node.ready["dashboard"] == f"http://127.0.0.1:{node.port('admin')}/"


def send(node: NodeProcess, method: str, path: str, body: object = None, **headers: str) -> http.client.HTTPResponse:
    """Send one request on a connection of its own and close it; returns the head of the answer."""
    with closing(node.connect(headers.pop("service", "admin"))) as connection:
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, None if body is None else json.dumps(body), fields)
        with closing(connection.getresponse()) as answer:
            return answer


@contextmanager
def watching(node: NodeProcess) -> Iterator[http.client.HTTPResponse]:
    """Look at the stream."""
    with closing(node.connect("admin")) as connection:
        connection.request("GET", "/events/stream", headers={"Cookie": sign_in(node)})
        with closing(connection.getresponse()) as answer:
            yield answer


def sign_in(node: NodeProcess) -> str:
    answer = send(node, "POST", "/login", {"token": node.ready["token"]})
    assert answer.status == 204
    return str(answer.headers["Set-Cookie"]).partition(";")[0]


def test_everything_but_the_shell_and_the_health_pages_needs_the_operator(node: NodeProcess) -> None:
    needs = ("/events/stream", "/inventory", "/status")
    opened = ("/", "/healthz", "/readyz", "/version", "/openapi.json")

    assert [send(node, "GET", path).status for path in needs] == [401] * len(needs)
    assert [send(node, "GET", path).status for path in opened] == [200] * len(opened)
    assert [send(node, "GET", path, Cookie=sign_in(node)).status for path in needs] == [200] * len(needs)


def test_a_session_opens_the_admin_listener_and_no_other(node: NodeProcess) -> None:
    cookie = sign_in(node)
    secret = cookie.partition("=")[2]
    by_cookie = send(node, "GET", "/v1/topics", service="mailbox", Cookie=cookie)
    by_bearer = send(node, "GET", "/v1/topics", service="mailbox", Authorization=f"Bearer {secret}")

    assert (by_cookie.status, by_bearer.status) == (401, 401)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:5300", "127.0.0.1.evil.example"])
def test_a_rebound_name_does_not_reach_the_page(node: NodeProcess, host: str) -> None:
    cookie = sign_in(node)

    assert send(node, "GET", "/", Host=host).status == 421
    assert send(node, "GET", "/events/stream", Host=host, Cookie=cookie).status == 421
    assert send(node, "POST", "/login", {"token": node.ready["token"]}, Host=host).status == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:1", "null"])
def test_another_sites_page_can_change_nothing_with_a_session(node: NodeProcess, origin: str) -> None:
    cookie = sign_in(node)

    assert send(node, "POST", "/config/reload", Cookie=cookie, Origin=origin).status == 403
    assert send(node, "GET", "/status", Cookie=cookie, Origin=origin).status == 401


def test_the_stream_tells_the_end_and_does_not_hold_it_up() -> None:
    with NodeProcess() as node:
        spent = once(node)
        with ExitStack() as stack:
            streams = [stack.enter_context(watching(node)) for _ in range(3)]
            first = [stream.readline() for stream in streams]
            node.signal(signal.SIGTERM)
            rest = [stream.read() for stream in streams]
        code, out, errors = node.wait()
        token = node.ready["token"]

    assert first == [b"event: state\n"] * 3
    assert all(b'event: bye\ndata: {"why":"stopped"}' in text for text in rest)
    assert code == 0, errors
    assert json.loads(out.splitlines()[-1]) == {"event": "stopped", "aborted": []}
    assert token not in errors
    assert spent not in errors


def test_the_bodies_of_a_sign_in_are_strict(node: NodeProcess) -> None:
    bodies = [{"tokn": "x"}, ["x"], {"token": 1}, "x"]

    assert [send(node, "POST", "/login", body).status for body in bodies] == [400] * len(bodies)


def press(node: NodeProcess, action: str, row: str = "page/lost", **fields: str) -> tuple[int, dict]:
    """Press a button of a panel that is not there any more; returns status and answer."""
    return say(node, "POST", f"/panels/dead-letters/{action}", {"row": row}, **fields)


def say(node: NodeProcess, method: str, path: str, body: object = None, **fields: str) -> tuple[int, dict]:
    """Send one request as the page does; returns status and answer."""
    with closing(node.connect("admin")) as connection:
        headers = {name.replace("_", "-"): value for name, value in fields.items()}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        with closing(connection.getresponse()) as answer:
            return answer.status, json.loads(answer.read())


def test_dead_letters_are_sent_back_by_the_operator_and_by_no_other_page(node: NodeProcess) -> None:
    letter = {"topic": "page/lost", "payload_b64": "aGk=", "ttl_ms": 1}
    sent = node.ask("mailbox", "POST", "/v1/send", letter, token=True).json()
    cookie, back, path = sign_in(node), {"topic": "page/lost", "limit": 10}, "/api/mailbox/v1/dlq/reprocess"
    refused = [
        say(node, "POST", path, back)[0],
        say(node, "POST", path, back, Cookie=cookie, Origin="http://evil.example")[0],
    ]
    while not (looked := say(node, "GET", "/api/mailbox/v1/dlq?topic=page/lost", Cookie=cookie)[1]["entries"]):
        continue  # it dies when the scanner comes by
    done = say(node, "POST", path, back, Cookie=cookie, Sec_Fetch_Site="same-origin")

    assert set(refused) <= {401, 403}
    assert [(row["msg_id"], row["reason"]) for row in looked] == [(sent["msg_id"], "ttl")]
    assert done == (202, {"accepted": 1})


def test_a_button_for_a_row_that_never_was_is_not_found(node: NodeProcess) -> None:
    cookie = sign_in(node)
    pressed = [press(node, action, row, Cookie=cookie) for action in ("look", "redrive") for row in ("", "no topic\0")]

    assert [(status, said["code"]) for status, said in pressed] == [(404, "not_found")] * 4
