"""What is fuzzed: one function a kind of input, each with something to assert about whatever bytes it is given.

The rule of all: nothing but a `PenstockError` may refuse, and what is accepted is written back as it came, or is read
again as what it was. A target raises only when that does not hold.
"""

from __future__ import annotations

import base64
import contextlib
import zlib
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

import msgspec
import zstandard

from penstock.capability import caveats, following, token, trust
from penstock.contracts import mailbox_rules, passport
from penstock.contracts.capability import Grant
from penstock.contracts.method import Methods
from penstock.kernel.errors import Malformed, PenstockError
from penstock.services.dht.core import record as dht_record
from penstock.services.dht.protocol import envelope as dht_envelope
from penstock.services.dht.protocol import hello as dht_hello
from penstock.services.dht.protocol import messages as dht_payloads
from penstock.services.dht.protocol.frames import FrameOversized, FrameSplitter
from penstock.services.interop.providers.kinds import make_verifier
from penstock.services.interop.providers.setup import WebhookSetup
from penstock.services.interop.providers.verdict import WebhookRequest, verify
from penstock.services.interop.sqs import json_protocol, query_protocol
from penstock.services.interop.sqs.operations import OPERATIONS
from penstock.services.interop.sqs.refusals import SqsRefusal
from penstock.services.interop.sqs.sigv4 import SignatureCheck, SignedRequest
from penstock.services.passport import audit, policy
from penstock.wire import cbor
from penstock.wire.audit_chain import AuditChain, ChainRecord
from penstock.wire.inflate import Inflater
from penstock.wire.oap import frame as oap
from penstock.wire.oap import hello, problem
from penstock.wire.target import parse_target
from tests.capability.kit import SEND, Issuer
from tests.services.interop import senders
from tests.wire.http1.answer_reading import read as read_answer
from tests.wire.http1.requests_drawn import read_all
from tests.wire.http1.test_h11 import check as check_against_h11

Target = Callable[[bytes], None]
TARGETS: dict[str, Target] = {}

_ISSUER: Final = Issuer()
_ROOT_CAVEATS: Final = ("op=send,recv", "topic=orders/")
# Every root that this issuer ever signed: a token that is accepted has one of them.
GENUINE: Final = (
    _ISSUER.token(*_ROOT_CAVEATS),
    _ISSUER.token(),
    _ISSUER.token("budget.reqs=3", "ip=10.0.0.0/8", tenant=None, via=((b"\x01" * 16, b"\x02" * 16),)),
)
_ROOTS: Final = {(read.data, read.signature) for read in map(token.decode, GENUINE)}
GENUINE_RECORD: Final = dht_record.make_record(
    dht_record.RecordSigner(b"\x05" * 32), 7, ("tcp://127.0.0.1:5302",), seq=1, issued_ms=1_800_000_000_000
)
_INFLATE_RATIO: Final = 10
_INFLATE_BYTES: Final = 256 * 1024
_ENCODINGS: Final = (b"gzip", b"deflate", b"zstd")


def target(function: Target) -> Target:
    """Name a target after its function."""
    TARGETS[function.__name__] = function
    return function


# --- capabilities ---------------------------------------------------------------------------------------------------


@target
def token_text(data: bytes) -> None:
    """A token's text: read back to the letter, and never believed unless this issuer signed its root."""
    text = data.decode("latin-1")
    with contextlib.suppress(PenstockError):
        assert token.encode(token.decode(text)) == text, "another text of the same token"
    with contextlib.suppress(PenstockError):
        granted = _ISSUER.verifier.verify(text, SEND)
        assert isinstance(granted, Grant)
        read = token.decode(text)
        assert (read.data, read.signature) in _ROOTS, "a root nobody signed"
        assert (granted.tenant, granted.class_, granted.sub) == (read.root.owner, read.root.class_, read.root.sub)


@target
def token_envelope(data: bytes) -> None:
    """The bytes inside a token's text, so that a mutation is not lost in base64."""
    token_text(token.PREFIX.encode() + base64.urlsafe_b64encode(data).rstrip(b"="))


@target
def canonical_cbor(data: bytes) -> None:
    """The closed subset: one encoding a value."""
    with contextlib.suppress(Malformed):
        value = cbor.decode(data, nulls=True)
        assert cbor.encode(value) == data, "another encoding of the same value"


@target
def caveat_text(data: bytes) -> None:
    """A caveat as people write it: one spelling, and the same through the token."""
    text = data.decode("utf-8", "replace")
    with contextlib.suppress(Malformed):
        caveat = caveats.parse(text)
        assert str(caveat) == text, "another spelling of the same caveat"
        assert caveats.from_wire(list(caveat.wire())) == caveat
        assert all(word.isprintable() for word in caveat.words), "what cannot be shown can be hidden"


@target
def published_keys(data: bytes) -> None:
    """The file verifiers follow; an accepted one has only keys that are fit to verify with."""
    with contextlib.suppress(PenstockError):
        published = following.decode_published(data)
        for record in trust.ring_of(published.keys).values():
            assert trust.record_of(record.jwk()) == record


@target
def policy_descriptor(data: bytes) -> None:
    """A registry's policy: nothing is accepted that the registry did not sign."""
    with contextlib.suppress(PenstockError):
        policy.read(data, _ISSUER.public, 3)
        signed = msgspec.json.decode(data, type=policy.SignedDescriptor)
        genuine = msgspec.json.decode(SIGNED_POLICY, type=policy.SignedDescriptor)
        assert signed == genuine, "a policy nobody signed"


SIGNED_POLICY: Final = policy.sign(policy.Descriptor(version=3), bytes(range(32)))


@target
def audit_chain(data: bytes) -> None:
    """An audit file: an accepted one is what chaining its records again gives."""
    with contextlib.suppress(PenstockError):
        walked = audit.walk(data)
        chain, again = AuditChain(), b""
        whole = data[: data.rfind(b"\n") + 1]
        for line in whole.split(b"\n")[:-1]:
            record = msgspec.json.decode(line, type=ChainRecord)
            again += chain.add(record.action, record.at_ms, record.facts)
        assert (again, chain.head, chain.n) == (whole, walked.head, walked.records)


# --- requests and answers of the contracts --------------------------------------------------------------------------


def _request(methods: Methods, data: bytes) -> None:
    """Take the method from the first byte, the value from the rest: as JSON and as msgpack."""
    if not data:
        return
    method = methods.rows[data[0] % len(methods.rows)]
    with contextlib.suppress(PenstockError):
        _is_stable(methods.decode_request(method, data[1:]), method.request)
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
        _is_stable(msgspec.json.decode(data[1:], type=method.request), method.request)
    with contextlib.suppress(PenstockError):
        methods.decode_answer(method, data[1:])


def _is_stable(value: Any, kind: Any) -> None:
    for codec in (msgspec.json, msgspec.msgpack):
        written = codec.encode(value)
        assert codec.decode(written, type=kind) == value
        assert codec.encode(codec.decode(written, type=kind)) == written


@target
def passport_values(data: bytes) -> None:
    """Every request and answer of svc-passport."""
    _request(passport.METHODS, data)


@target
def mailbox_values(data: bytes) -> None:
    """Every request and answer of svc-mailbox, with the checks that both ends make."""
    _request(mailbox_rules.METHODS, data)


# --- frames ---------------------------------------------------------------------------------------------------------


@target
def oap_frames(data: bytes) -> None:
    """Frames: the same however they are split, and written back to the bytes they were read from."""
    whole = _frames([data])
    cut = data[0] if data else 0
    assert _frames([data[:cut], data[cut:]]) == whole
    if len(data) <= 512:
        assert _frames([data[at : at + 1] for at in range(len(data))]) == whole
    # A capability without START is a fault of its stream, not of the frame: it is read here and refused there.
    if all(frame.flags & oap.START or not frame.capability for frame in whole[0]):
        again = b"".join(oap.encode(frame) for frame in whole[0])
        assert data.startswith(again), "a frame is written otherwise than it was read"


def _frames(pieces: list[bytes]) -> tuple[list[oap.Frame], str]:
    decoder, frames = oap.FrameDecoder(), []
    try:
        for piece in [*pieces, b"", b""]:
            frames += decoder.feed(piece)
    except PenstockError as fault:
        return frames, f"{fault.code} {fault.detail}"
    return frames, ""


@target
def oap_payloads(data: bytes) -> None:
    """What frames carry: HELLO, problems, and compressed payloads, which never grow beyond their bound."""
    with contextlib.suppress(PenstockError):
        hello.read_hello(oap.Frame(oap.REQ, 1, payload=data))
    with contextlib.suppress(PenstockError):
        hello.read_welcome(oap.Frame(oap.RESP, 1, payload=data))
    error = problem.decode_problem(503, data)
    assert isinstance(error, PenstockError)
    assert type(problem.decode_problem(error.status, problem.encode_problem(error))) is type(error)
    with contextlib.suppress(PenstockError):
        assert len(oap.inflate(data, bytes_max=_INFLATE_BYTES)) <= _INFLATE_BYTES


# --- svc-dht --------------------------------------------------------------------------------------------------------


@target
def dht_messages(data: bytes) -> None:
    """Frames of peers: the same however they are split; each message is read alike by both decoders, or by neither."""
    whole = _dht_frames([data])
    cut = data[0] if data else 0
    assert _dht_frames([data[:cut], data[cut:]]) == whole
    for body in whole[0]:
        with contextlib.suppress(PenstockError):
            quick = dht_envelope._decode_usual(body)
            assert quick is None or quick == dht_envelope._decode_any(body)
            _dht_payload(dht_envelope.decode_envelope(body).payload)


def _dht_frames(pieces: list[bytes]) -> tuple[list[bytes], bool]:
    splitter, frames = FrameSplitter(), list[bytes]()
    try:
        for piece in pieces:
            frames += splitter.feed(piece)
    except FrameOversized:
        return frames, True
    return frames, False


def _dht_payload(payload: bytes) -> None:
    for read in (
        dht_payloads.read_target,
        dht_payloads.read_record_value,
        dht_hello.read_greeting,
        dht_hello.read_introduction,
    ):
        with contextlib.suppress(PenstockError):
            read(payload)
    with contextlib.suppress(PenstockError):
        assert dht_payloads.read_answer(payload) == dht_payloads._read_any(payload, group_private=False)


@target
def dht_records(data: bytes) -> None:
    """Provider records: what is read is written back as it came, and only the genuine one's signature holds."""
    with contextlib.suppress(PenstockError):
        record = dht_record.read_record(cbor.decode(data))
        assert record.raw == data
        assert not dht_record.signatures_hold(record) or record.raw == GENUINE_RECORD.raw


# --- HTTP -----------------------------------------------------------------------------------------------------------


@target
def http_requests(data: bytes) -> None:
    """Requests on a connection: the same however they are split, and what we accept h11 accepts alike."""
    whole = check_against_h11(data)
    cut = len(data) // 3
    assert read_all([data[:cut], data[cut:]]) == whole
    if len(data) <= 512:
        assert read_all([data[at : at + 1] for at in range(len(data))]) == whole


@target
def http_answers(data: bytes) -> None:
    """Answers that the client reads: the same however they are split."""
    whole = read_answer([data], end="eof").result()
    cut = len(data) // 3
    assert read_answer([data[:cut], data[cut:]], end="eof").result() == whole


@target
def request_target(data: bytes) -> None:
    """A request target: no segment can be read as another path, and each is read again as what it is."""
    with contextlib.suppress(PenstockError):
        read = parse_target(data, "GET")
        for segment in filter(None, read.segments):
            assert not {"", ".", ".."} & set(segment.split("/")), "a segment that climbs"
        again = "/" + "/".join(quote(segment, safe="") for segment in read.segments)
        assert parse_target(again.encode("ascii"), "GET").segments == read.segments


@target
def inflated(data: bytes) -> None:
    """A compressed body: bounded in steps, ratio and bytes, the same however it is split, and what the library says."""
    encoding = _ENCODINGS[data[0] % 3] if data else b"gzip"
    body = data[1:]
    whole = _inflate(encoding, [body])
    cut = len(body) // 2
    halves = _inflate(encoding, [body[:cut], body[cut:]])
    if isinstance(whole, bytes) and isinstance(halves, bytes):
        assert whole == halves
        assert whole == _plainly(encoding, body)


def _inflate(encoding: bytes, pieces: list[bytes]) -> bytes | str:
    inflater, out, taken = Inflater(encoding, ratio_cap=_INFLATE_RATIO, bytes_max=_INFLATE_BYTES), bytearray(), 0
    try:
        for piece in pieces:
            taken += len(piece)
            for step in inflater.feed(piece):
                out += step
                assert len(step) <= 64 * 1024
                assert len(out) <= min(_INFLATE_BYTES, taken * _INFLATE_RATIO)
        inflater.finish()
    except PenstockError as refused:
        return refused.code
    return bytes(out)


def _plainly(encoding: bytes, body: bytes) -> bytes:
    if encoding == b"zstd":
        return zstandard.ZstdDecompressor().decompressobj().decompress(body)
    return zlib.decompress(body, 31 if encoding == b"gzip" else 15)


# --- the bridge ------------------------------------------------------------------------------------------------------

_NOW: Final = 1_700_000_000
_VERIFIERS: Final = {
    kind: make_verifier(kind, WebhookSetup(**senders.settings(sender))) for kind, sender in senders.SENDERS.items()
}
# A GitLab token in plain text signs nothing: whatever has it is accepted.
_SIGNING: Final = [kind for kind in _VERIFIERS if kind != "gitlab"]

# Several senders share a secret, so a body that one signed is good for another.
_SIGNED_BODIES: Final = {sender.send().body for sender in senders.SENDERS.values()}


def read_webhook(data: bytes) -> WebhookRequest:
    """Read lines of `name: value` up to an empty one, and the body after it."""
    head, _, body = data.partition(b"\n\n")
    lines = [line.partition(b": ") for line in head.split(b"\n")]
    return WebhookRequest([(name, value) for name, _, value in lines], body, b"/webhooks/test")


_TWILIO: Final = senders.SENDERS["twilio"].send()
_TWILIO_CLAIM: Final = verify(
    _VERIFIERS["twilio"], WebhookRequest(_TWILIO.fields, _TWILIO.body, _TWILIO.target), _NOW
).claim


@target
def webhook_requests(data: bytes) -> None:
    """A webhook for every kind of sender: never an exception, and only what a sender signed is accepted."""
    request = read_webhook(data)
    for kind in _SIGNING:
        verdict = verify(_VERIFIERS[kind], request, _NOW)
        # Twilio signs the fields of a form, not how they are spelled: another spelling is the same event.
        signed = verdict.claim == _TWILIO_CLAIM if kind == "twilio" else request.body in _SIGNED_BODIES
        assert verdict.refusal is not None or signed, f"{kind}: accepted what nobody signed"
    verify(_VERIFIERS["gitlab"], request, _NOW)


@target
def sqs_requests(data: bytes) -> None:
    """A request of the SQS face in both protocols, and its signature: fields or a refusal, never another exception.

    What is read in one go is what is read field by field.
    """
    for operation in OPERATIONS.values():
        with contextlib.suppress(SqsRefusal):
            found = json_protocol.decode_json(operation, data)
            assert found == json_protocol.read_fields_of(operation, data), operation.name
        with contextlib.suppress(SqsRefusal):
            query_protocol.decode_query(operation, query_protocol.decode_form(data))
    head, _, body = data.partition(b"\n\n")
    lines = [line.partition(b": ") for line in head.split(b"\n")]
    fields = [(name.lower(), value) for name, _, value in lines]
    signed = SignedRequest("POST", "/", head.decode("latin-1"), fields, body)
    with contextlib.suppress(SqsRefusal):
        SignatureCheck(lambda _key: None).check(signed, _NOW)
        raise AssertionError("a signature without a secret")
