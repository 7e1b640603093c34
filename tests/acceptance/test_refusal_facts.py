"""Every refusal that a listener or the gateway makes says what was refused, which limit it was, and what to do next."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.acceptance.node_process import STOP_S, NodeProcess

MIB = 1 << 20
SETTINGS = {
    "http.read_timeout": "300ms",
    "mailbox.max_conns": "64",
    "mailbox.max_conns_per_ip": "8",
    "omnigate.quotas.per_ip_rps": "20",
    "omnigate.quotas.per_cap_rps": "1",
}
CONFIG = """
[[omnigate.routes]]
prefix = "/open"
upstream = ["http://127.0.0.1:1"]
[[omnigate.routes]]
prefix = "/known"
upstream = ["http://127.0.0.1:1"]
require = ["op=get"]
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    config = tmp_path_factory.mktemp("config") / "penstock.toml"
    config.write_text(CONFIG)
    said = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    with NodeProcess("--config", str(config), *said) as running:
        yield running


class Raw:
    """A connection that says exactly these bytes, and reads answers one by one."""

    def __init__(self, node: NodeProcess, service: str = "mailbox") -> None:
        self._socket = socket.create_connection(("127.0.0.1", node.port(service)), timeout=STOP_S)
        self._file = self._socket.makefile("rb")

    def say(self, *pieces: bytes) -> Raw:
        # Who is refused early need not take the rest.
        with suppress(OSError):
            self._socket.sendall(b"".join(pieces))
        return self

    def hear(self) -> dict[str, Any]:
        status = int(self._file.readline().split()[1])
        fields = dict(line.split(b": ", 1) for line in iter(self._file.readline, b"\r\n"))
        lower = {name.lower(): value for name, value in fields.items()}
        body = self._file.read(int(lower[b"content-length"]))
        said: dict[str, Any] = json.loads(body) if body else {}
        return {"status": status, "retry_after_field": b"retry-after" in lower, **said}

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def head(node: NodeProcess, line: str, *fields: str, token: str | None = "") -> bytes:
    mine = [] if token is None else [f"Authorization: Bearer {token or node.ready['token']}"]
    return "\r\n".join([f"{line} HTTP/1.1", "Host: 127.0.0.1", *mine, *fields, "", ""]).encode()


def once(node: NodeProcess, *pieces: bytes, service: str = "mailbox") -> dict[str, Any]:
    raw = Raw(node, service).say(*pieces)
    try:
        return raw.hear()
    finally:
        raw.close()


SEND = ("POST /v1/send", "Content-Type: application/json")


def announced(node: NodeProcess) -> dict[str, Any]:
    return once(node, head(node, *SEND, f"Content-Length: {MIB + 1}"))


def chunked(node: NodeProcess) -> dict[str, Any]:
    return once(node, head(node, *SEND, "Transfer-Encoding: chunked"), b"%x\r\n" % (MIB + 1))


def many_chunks(node: NodeProcess) -> dict[str, Any]:
    piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    return once(node, head(node, *SEND, "Transfer-Encoding: chunked"), piece * 17)


def streamed(node: NodeProcess) -> dict[str, Any]:
    """A body that its handler reads as it comes."""
    return once(node, head(node, "PUT /o", "Transfer-Encoding: chunked"), b"%x\r\n" % (1 << 40), service="storage")


def inflated(node: NodeProcess) -> dict[str, Any]:
    # Grows by less than the cap on the ratio, and is larger than a body may be.
    data = gzip.compress(b"".join(b"%08x" % (number * 2654435761 % 2**32) for number in range(MIB // 8 + 9)), 1)
    fields = ("Content-Encoding: gzip", f"Content-Length: {len(data)}")
    return once(node, head(node, *SEND, *fields), data)


def bomb(node: NodeProcess) -> dict[str, Any]:
    data = gzip.compress(b" " * MIB)
    fields = ("Content-Encoding: gzip", f"Content-Length: {len(data)}")
    return once(node, head(node, *SEND, *fields), data)


def small_chunks(node: NodeProcess) -> dict[str, Any]:
    return once(node, head(node, *SEND, "Transfer-Encoding: chunked"), b"1;%s\r\nx\r\n" % (b"e" * 500) * 200)


def many_trailers(node: NodeProcess) -> dict[str, Any]:
    return once(node, head(node, *SEND, "Transfer-Encoding: chunked"), b"0\r\n", b"X-A: b\r\n" * 200)


def large_trailers(node: NodeProcess) -> dict[str, Any]:
    return once(node, head(node, *SEND, "Transfer-Encoding: chunked"), b"0\r\n", b"X-A: %b\r\n" % (b"b" * 20_000))


def long_line(node: NodeProcess) -> dict[str, Any]:
    return once(node, head(node, "GET /" + "x" * 9000))


def long_field(node: NodeProcess) -> dict[str, Any]:
    return once(node, head(node, "GET /readyz", "X-A: " + "b" * 13_000))


def many_fields(node: NodeProcess) -> dict[str, Any]:
    return once(node, head(node, "GET /readyz", *(f"X-{number}: a" for number in range(120))))


def large_head(node: NodeProcess) -> dict[str, Any]:
    return once(node, head(node, "GET /readyz", *(f"X-{number}: {'a' * 9000}" for number in range(4))))


def slow_head(node: NodeProcess) -> dict[str, Any]:
    return once(node, b"GET /readyz HTTP/1.1\r\nHost:")


def slow_body(node: NodeProcess) -> dict[str, Any]:
    return once(node, head(node, *SEND, "Content-Length: 10"), b"{")


def no_token(node: NodeProcess) -> dict[str, Any]:
    return once(node, head(node, "GET /v1/topics", token=None))


def bad_token(node: NodeProcess) -> dict[str, Any]:
    return once(node, head(node, "GET /v1/topics", token="psp1_AAAA"))


def narrow_token(node: NodeProcess) -> str:
    asked = {"subject_ref": "ada", "audience": "svc-mailbox", "caveats": ["op=recv", "topic=orders"]}
    answer = node.ask("passport", "POST", "/v1/passport/issue", asked, token=True)
    return str(answer.json()["token"])


def not_covered(node: NodeProcess) -> dict[str, Any]:
    body = b'{"topic":"orders","payload":"x"}'
    return once(node, head(node, *SEND, f"Content-Length: {len(body)}", token=narrow_token(node)), body)


def not_covered_at_the_gateway(node: NodeProcess) -> dict[str, Any]:
    return once(
        node, head(node, "POST /v1/mailbox/orders", "Content-Length: 0", token=narrow_token(node)), service="omnigate"
    )


def cross_site(node: NodeProcess) -> dict[str, Any]:
    return once(node, head(node, *SEND, "Origin: http://evil.example", "Content-Length: 0"))


def crowded_address(node: NodeProcess) -> dict[str, Any]:
    held = [Raw(node) for _ in range(9)]
    try:
        return held[-1].hear()
    finally:
        for each in held:
            each.close()


def strangers(node: NodeProcess) -> dict[str, Any]:
    raw = Raw(node, "storage")
    try:
        for _ in range(1000):
            said = raw.say(head(node, "PUT /o", "Content-Length: 0", token=None)).hear()
            if said["status"] != 401:
                return said
    finally:
        raw.close()
    pytest.fail("nobody was refused")


def until_429(node: NodeProcess, request: bytes) -> dict[str, Any]:
    raw = Raw(node, "omnigate")
    try:
        for _ in range(2000):
            said = raw.say(request).hear()
            if said["status"] == 429:
                return said
    finally:
        raw.close()
    pytest.fail("nobody was refused")


def quota_of_an_address(node: NodeProcess) -> dict[str, Any]:
    return until_429(node, head(node, "GET /open/x", token=None))


def quota_of_a_capability(node: NodeProcess) -> dict[str, Any]:
    return until_429(node, head(node, "GET /known/x"))


def scrapes(node: NodeProcess) -> dict[str, Any]:
    for _ in range(200):
        said = node.ask("admin", "GET", "/metrics")
        if said.status == 429:
            return {"status": 429, "retry_after_field": "retry-after" in said.headers, **said.json()}
    pytest.fail("nobody was refused")


BODY = {"limit": "body", "limit_value": MIB, "setting": "mailbox.limits.max_body_bytes"}
CASES = [
    (announced, 413, {**BODY, "actual": MIB + 1}),
    (chunked, 413, BODY),
    (many_chunks, 413, BODY),
    (inflated, 413, {**BODY, "limit": "inflate_bytes"}),
    (bomb, 413, {"limit": "inflate_ratio", "limit_value": 10, "setting": "mailbox.limits.decompress_ratio_cap"}),
    (streamed, 413, {"limit": "body", "setting": "storage.put_max_bytes"}),
    (small_chunks, 413, {"limit": "chunk_overhead"}),
    (many_trailers, 431, {"limit": "trailers", "limit_value": 16}),
    (large_trailers, 431, {"limit": "trailer_bytes", "limit_value": 4 << 10}),
    (long_line, 431, {"limit": "request_line", "limit_value": 8 << 10}),
    (long_field, 431, {"limit": "field", "limit_value": 12 << 10}),
    (many_fields, 431, {"limit": "fields", "limit_value": 100}),
    (large_head, 431, {"limit": "head", "limit_value": 32 << 10}),
    (slow_head, 408, {"op": "read", "budget_ms": 300, "setting": "mailbox.read_timeout"}),
    (slow_body, 408, {"op": "read", "setting": "mailbox.read_timeout"}),
    (no_token, 401, {"reason": "missing"}),
    (bad_token, 401, {}),
    (not_covered, 403, {"needed": "op=send", "has": "op=recv"}),
    (not_covered_at_the_gateway, 403, {"needed": "op=send", "has": "op=recv"}),
    (cross_site, 403, {"reason": "cross_site"}),
    (crowded_address, 429, {"limit": "max_conns_per_ip", "limit_value": 8, "setting": "mailbox.max_conns_per_ip"}),
    (strangers, 429, {"limit": "strangers", "limit_value": 200, "scope": "strangers"}),
    # Before the next one: a token that is not known to be good yet counts for its address.
    (quota_of_a_capability, 429, {"limit": "per_cap", "limit_value": 1, "setting": "omnigate.quotas.per_cap_rps"}),
    (quota_of_an_address, 429, {"limit": "per_ip", "limit_value": 20, "setting": "omnigate.quotas.per_ip_rps"}),
    (scrapes, 429, {"limit": "scrapes", "limit_value": 10}),
]


@pytest.mark.parametrize(("refused", "status", "facts"), CASES, ids=[case[0].__name__ for case in CASES])
def test_a_refusal_says_its_limit_and_the_next_step(
    node: NodeProcess, refused: Any, status: int, facts: dict[str, object]
) -> None:
    said = refused(node)

    assert said["status"] == status, json.dumps(said)
    assert {name: said.get(name) for name in facts} == facts, json.dumps(said)
    assert said["hint"].endswith("."), said
    assert said["docs"].startswith("docs/errors.md#"), said
    assert said["detail"].endswith("."), said
    assert said["retry_after_field"] == (status == 429)


def test_a_full_class_of_the_gateway_says_which_queue_it_is() -> None:
    with NodeProcess("--set", "omnigate.channels.work=1") as narrow:
        said = once(narrow, head(narrow, "GET /v1/topics"), service="omnigate")

    assert (said["status"], said["limit"], said["setting"]) == (429, "class_queue", "omnigate.channels.work")
    assert (said["limit_value"], said["traffic_class"], said["hint"].endswith(".")) == (0, "verify", True)
