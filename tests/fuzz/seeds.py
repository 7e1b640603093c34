"""The seeds of the corpus: `python -m tests.fuzz.seeds` writes them. What a fuzzer found is added by hand."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import zstandard

from penstock.capability.following import PublishedTrust
from penstock.capability.making import seal
from penstock.contracts import mailbox_rules, passport
from penstock.contracts.method import Methods
from penstock.contracts.passport import KeySet, Revocation, Revocations
from penstock.kernel.errors import Busy
from penstock.services.dht.core import contact as dht_contact
from penstock.services.dht.protocol import envelope as dht_envelope
from penstock.services.dht.protocol import hello as dht_hello
from penstock.services.dht.protocol import messages as dht_messages
from penstock.wire import cbor
from penstock.wire.audit_chain import AuditChain
from penstock.wire.oap import frame, problem
from tests.capability.kit import Issuer, narrowed
from tests.fuzz.mutating import CORPUS
from tests.fuzz.targets import GENUINE, GENUINE_RECORD, SIGNED_POLICY
from tests.services.interop.senders import SENDERS, Sent
from tests.wire.http1.h11_differences import DIFFERENCES

_FORM: Final = (
    b"Action=SendMessage&QueueUrl=q&MessageBody=b&MessageAttribute.1.Name=a&MessageAttribute.1.Value.DataType=String"
)
_CAVEATS: Final = (
    "op=send,recv", "topic=orders/,eu*", "route=/v1/o", "method=GET,HEAD", "ip=10.0.0.0/8,::1", "exp=1800000900",
    "nbf=1800000000", "budget.bytes=1048576", "budget.reqs=100", "rate.rps=5", "tenant=acme", "scope=authed",
    "amnesia=true",
    "aud=svc-mailbox", "svc=*", "region=eu", "pq.fallback=true", "proof.bind=x",
)  # fmt: skip
_VALUES: Final[dict[str, dict[str, Any]]] = {
    "issue": {
        "subject_ref": "a",
        "audience": ["svc-mailbox"],
        "class": "authed",
        "ttl_s": 9,
        "caveats": ["op=send"],
        "accept_algs": [],
    },
    "verify": {"token": "psp1_x", "context": {"aud": "svc-mailbox", "op": "send", "topic": "t"}},
    "verify_batch": {"items": [{"token": "psp1_x"}, {"token": "", "context": {"ip": "::1"}}]},
    "revoke": {"tid": "00" * 16, "reason": "lost", "force": True},
    "revocations": {"since": 7},
    "send": {
        "topic": "orders/eu",
        "payload_b64": "aGVsbG8=",
        "idem_key": "k",
        "attrs": {"a": "b"},
        "ttl_ms": 1000,
    },
    "send_batch": {"items": [{"topic": "t", "payload_b64": ""}]},
    "recv": {"topic": "orders/eu"},
    "ack": {"msg_id": "0" * 26, "receipt": "r"},
    "nack": {"msg_id": "0" * 26, "receipt": "r", "delay_ms": 5},
}
_HEAD: Final = b"POST /v1/send?x=%20 HTTP/1.1\r\nHost: a:1\r\nAuthorization: Bearer psp1_x\r\n"


def tokens() -> Iterator[str]:
    """Give tokens of every shape, good and bad."""
    issuer = Issuer()
    yield from GENUINE
    yield narrowed(GENUINE[0], ("topic=orders/eu",))
    yield narrowed(GENUINE[1], ("op=send",), ("tenant=acme", "scope=authed"), ("exp=1800000100",))
    yield seal(narrowed(GENUINE[0], ("op=send",)))
    yield issuer.token(exp=1)
    yield issuer.token(kid="other")


def seeds() -> dict[str, list[bytes]]:
    """Give the first inputs of every target."""
    texts = list(tokens())
    return {
        "token_text": [text.encode() for text in texts],
        "token_envelope": [_bytes(text) for text in texts],
        "canonical_cbor": [cbor.encode(value) for value in _cbor_values()],
        "caveat_text": [text.encode() for text in _CAVEATS],
        "published_keys": [_published()],
        "policy_descriptor": [SIGNED_POLICY],
        "audit_chain": [_chain(3), _chain(2)[:-5]],
        "passport_values": _values(passport.METHODS),
        "mailbox_values": _values(mailbox_rules.METHODS),
        "oap_frames": list(_frames()),
        "oap_payloads": [b'{"ua":"x","max_frame":65536}', problem.encode_problem(Busy("full", limit="x")), _zstd()],
        "dht_messages": list(_dht_messages()),
        "dht_records": [GENUINE_RECORD.raw, GENUINE_RECORD.raw[:-1]],
        "http_requests": [*_requests(), *(each.example for each in DIFFERENCES.values())],
        "http_answers": list(_answers()),
        "request_target": [
            b"/",
            b"/v1/topics/orders%2Feu?a=b",
            b"http://a/x?y",
            b"/a/../b",
            b"/%2e%2e/x",
            b"*",
            b"/a/",
        ],
        "webhook_requests": [_webhook(sender.send()) for sender in SENDERS.values()],
        "sqs_requests": [
            b'{"QueueUrl":"q","MessageBody":"b","MessageAttributes":{"a":{"DataType":"String","StringValue":"x"}}}',
            _FORM,
            b"authorization: AWS4-HMAC-SHA256 Credential=AKIAFAKE/20231114/us-east-1/sqs/aws4_request, "
            b"SignedHeaders=host;x-amz-date, Signature="
            + b"0" * 64
            + b"\nhost: h\nx-amz-date: 20231114T221320Z\n\nbody",
            b"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAFAKE%2F20231114%2Fus-east-1%2Fsqs%2Faws4_request"
            b"&X-Amz-Date=20231114T221320Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature=" + b"0" * 64,
        ],
        "inflated": [b"\0" + gzip.compress(b"a" * 90, mtime=0), b"\1" + zlib.compress(b"hello" * 9), b"\2" + _zstd()],
    }


def _webhook(sent: Sent) -> bytes:
    return b"\n".join(b"%b: %b" % pair for pair in sent.fields) + b"\n\n" + sent.body


def _bytes(text: str) -> bytes:
    body = text.removeprefix("psp1_")
    return base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))


def _cbor_values() -> list[cbor.Encodable]:
    return [0, 23, 24, 1 << 40, -1, b"bytes", "text", [1, [2, [3]]], {0: 1, 9: b"x", 300: "y"}]


def _published() -> bytes:
    feed = Revocations(2, 2, 1, 5000, snapshot=True, entries=(Revocation(2, "tenant", "acme", 2, 1_800_000_000_000),))
    return msgspec.json.encode(PublishedTrust(1_800_000_000_000, KeySet((Issuer().record().jwk(),)), feed))


def _chain(records: int) -> bytes:
    chain = AuditChain()
    return b"".join(chain.add("issue", 1_800_000_000_000 + n, {"tid": f"{n:032x}", "epoch": n}) for n in range(records))


def _values(methods: Methods) -> list[bytes]:
    """Write each value twice: as JSON, and as msgpack."""
    found = []
    for place, method in enumerate(methods.rows):
        said = json.dumps(_VALUES.get(method.name, {})).encode()
        found.append(bytes((place,)) + said)
        try:
            value = msgspec.json.decode(said, type=method.request)
        except msgspec.MsgspecError:
            continue
        found.append(bytes((place,)) + msgspec.msgpack.encode(value))
    return found


def _frames() -> Iterator[bytes]:
    whole = frame.Frame(
        frame.REQ | frame.START | frame.END, 7, code=1, app_proto_id=1, capability=b"psp1_x", payload=b"hello"
    )
    yield frame.encode(whole)
    yield frame.encode(whole) + frame.encode(frame.Frame(frame.RESP | frame.START | frame.END, 7, code=200))
    yield frame.encode(whole)[:37]
    yield b"\xff\xff\xff\xff" + frame.encode(whole)[4:]


def _dht_messages() -> Iterator[bytes]:
    contacts = [dht_contact.Contact(number << 250, "10.0.0.1", 5302) for number in range(3)]
    for opcode, payload in (
        (1, dht_messages.find_request(7)),
        (2, dht_messages.find_answer(contacts, [GENUINE_RECORD])),
        (3, dht_messages.provide_request(GENUINE_RECORD)),
        (5, dht_messages.PONG),
        (6, dht_hello.greeting(bytes(32), 7)),
    ):
        yield dht_envelope.encode_envelope(opcode, 9, 2, payload, 1_800_000_000)
    yield (1 << 20 | 1).to_bytes(4, "big") + b"cut"
    yield b"\0\0\0\0"


def _requests() -> Iterator[bytes]:
    yield b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    yield _HEAD + b"Content-Length: 5\r\n\r\nhelloGET /2 HTTP/1.1\r\nHost: a\r\n\r\n"
    yield _HEAD + b"Transfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\n"
    yield _HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    yield b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nCookie: a\r\nCookie: b\r\nExpect: 100-continue\r\n\r\n"


def _answers() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    yield b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    yield b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"
    yield b"HTTP/1.0 503 Busy\r\nRetry-After: 1\r\n\r\nuntil the end"


def _zstd() -> bytes:
    return zstandard.ZstdCompressor(level=3).compress(b"hello hello hello" * 3)


def write() -> None:
    """Write the seeds into the corpus, leaving what else is there."""
    for name, inputs in seeds().items():
        folder = CORPUS / name
        folder.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(inputs):
            (folder / f"seed-{number:02}").write_bytes(data)


if __name__ == "__main__":
    write()
