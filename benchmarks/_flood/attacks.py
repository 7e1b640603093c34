"""For each port: a light request with a good token or signature, and the costliest anonymous request that we know.

A good token is one that its service has judged before, as that of a client at work. A forged token decodes, nobody
signed it, and each request has another one, so that nothing can be remembered of it. NUMBER in a request is replaced by
its number.
"""

from __future__ import annotations

import hmac
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks.sqs import Place, Signer
from penstock.capability import ed25519
from penstock.contracts.mailbox import Send
from penstock.contracts.mailbox_rules import METHODS
from penstock.net.oap.call import RequestHead
from penstock.wire import cbor
from penstock.wire.oap import frame as oap
from penstock.wire.oap.hello import Hello, hello_frame
from tests.acceptance.node_process import NodeProcess, free_port
from tests.capability.kit import Issuer, narrowed

SECRET = "not-a-real-secret"
ENV = {**os.environ, "GITHUB_SECRET": SECRET}
LARGE = bytes(60_000)
# Requests that one connection of a frame port carries.
FRAMES_EACH = 32
_WEBHOOKS = 512


class Attack(NamedTuple):
    """One port under attack."""

    name: str
    # Where the light caller asks, and what: one after the other, from the front again at the end.
    light_port: int
    light: list[bytes]
    flood_port: int
    flood: bytes
    # A flood of connections, each with this many requests; 0: of HTTP requests.
    dialled: int = 0


def configuration(directory: Path) -> tuple[list[str], int]:
    """Write the settings of the node under attack; returns its arguments and the port for frames."""
    path, frames = directory / "penstock.toml", free_port()
    path.write_text(
        f'[mailbox]\noap_addr = "127.0.0.1:{frames}"\n'
        '[interop]\npublic_url = "http://127.0.0.1"\n[interop.providers.github]\nsecrets = ["env:GITHUB_SECRET"]\n'
    )
    return ["--config", str(path)], frames


def request(method: str, path: str, token: str = "", body: bytes = b"", **fields: str) -> bytes:
    """Write a request."""
    bearer = {"Authorization": f"Bearer {token}"} if token else {}
    lines = {"Host": "127.0.0.1", **bearer, "Content-Length": str(len(body)), **fields}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def forged() -> str:
    """Make a long token of an issuer nobody knows; NUMBER makes each another one."""
    words = ",".join(f"t{number:03}" for number in range(32))
    text = narrowed(Issuer().token(kid="nobody"), *((f"topic={words}",) for _ in range(6)))
    # Somewhere in a signature: the token still decodes.
    return text[:-20] + "NUMBER" + text[-14:]


def attacks(node: NodeProcess, frames: int) -> list[Attack]:
    """List the ports of a node with what is asked there."""
    token, bad = node.ready["token"], forged()
    messages = [{"topic": f"topic/{number}", "payload_b64": ""} for number in range(256)]
    batch = _json(messages=messages)
    address = node.ask("storage", "PUT", "/o", {"small": True}, token=True).json()["address"]
    recv = request("POST", "/v1/recv", token, _json(topic="empty", wait_ms=0))
    find = request("GET", "/v1/dht/providers/b3:" + "0" * 64, token)
    inventory = request("GET", "/inventory", token)
    get = request("GET", f"/o/{address}", token)
    verify = request("POST", "/v1/passport/verify", token, _json(token=token))
    tokens = _json(items=[{"token": bad}] * 32)
    sqs = _sqs(node)

    def both(service: str, name: str, light: bytes | list[bytes], flood: bytes) -> Attack:
        port = node.port(service)
        return Attack(name, port, light if isinstance(light, list) else [light], port, flood)

    return [
        both("mailbox", "mailbox send batch", recv, request("POST", "/v1/send/batch", bad, batch)),
        both("omnigate", "omnigate send batch", recv, request("POST", "/v1/send/batch", bad, batch)),
        both("passport", "passport verify", verify, request("POST", "/v1/passport/verify_batch", bad, tokens)),
        both("passport", "passport feed", verify, request("GET", "/v1/passport/revocations?since=0")),
        both("storage", "storage put", get, request("PUT", "/o", bad, LARGE)),
        both("dht_http", "dht find", find, request("GET", "/v1/dht/providers/b3:" + "0" * 64, bad)),
        Attack("dht peers", node.port("dht_http"), [find], node.port("dht"), _introduction(), 1),
        both("interop", "interop webhook", _webhooks(), _webhook(0, LARGE, good=False)),
        both("interop", "interop put", get, request("POST", "/put", bad, LARGE)),
        both("interop", "interop sqs", sqs[0], sqs[1]),
        both("admin", "admin metrics", inventory, request("GET", "/metrics")),
        both("admin", "admin inventory", inventory, request("GET", "/inventory", bad)),
        Attack("mailbox frames", node.port("mailbox"), [recv], frames, _frames(bad), FRAMES_EACH),
    ]


def _json(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def _webhook(number: int, pad: bytes, *, good: bool) -> bytes:
    body = b'{"zen":"%d","pad":"%b"}' % (number, pad.replace(b"\0", b"x"))
    tag = hmac.digest(SECRET.encode(), body, "sha256").hex() if good else "0" * 58 + "NUMBER"
    fields = {
        "Content_Type": "application/json",
        "X_GitHub_Event": "ping",
        "X_GitHub_Delivery": f"72d3162e-cc78-11e3-81ab-{number:012}",
        "X_Hub_Signature_256": f"sha256={tag}",
    }
    return request("POST", "/webhooks/github", body=body, **fields)


def _webhooks() -> list[bytes]:
    """Make signed webhooks; when they begin again they are deliveries that were seen before, which is as light."""
    return [_webhook(number, b"", good=True) for number in range(1, 1 + _WEBHOOKS)]


def _sqs(node: NodeProcess) -> tuple[bytes, bytes]:
    """Sign a light request, and a large one by a key that the node knows and with a signature that is not its own."""
    told = node.ready["sqs"]
    place = Place(node.port("interop"), told["access_key_id"], told["secret_access_key"], 0)
    light = Signer(place).request("ListQueues", b"{}")
    wrong = Signer(place._replace(secret=SECRET)).request("SendMessage", _json(MessageBody="NUMBER" + "x" * 60_000))
    return light, wrong


def _introduction() -> bytes:
    """Write the second message of a peer's HELLO with a signature that does not hold; each verification costs."""
    public, _ = ed25519.expand(bytes(32))
    payload = cbor.encode({0: public, 1: bytes(32), 2: [], 3: 0, 4: bytes(64)})
    return len(payload).to_bytes(4, "big") + payload


def _frames(token: str) -> bytes:
    """Write a HELLO and requests with forged tokens."""
    code = METHODS.by_name["send"].code
    value = msgspec.Raw(msgspec.msgpack.encode(Send("topic/1", LARGE[:1000])))
    payload = msgspec.msgpack.encode(RequestHead(None, "flood", "", None, value))
    start = oap.encode(hello_frame(Hello("flood"), 1))
    kind, app = oap.REQ | oap.START | oap.END, METHODS.app_proto_id
    asked = (
        oap.Frame(kind, number, code=code, app_proto_id=app, capability=token.encode(), payload=payload)
        for number in range(2, 2 + FRAMES_EACH)
    )
    return start + b"".join(map(oap.encode, asked))
