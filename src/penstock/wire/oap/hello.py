"""HELLO, the control exchange of OAP/1: JSON `{ua}` out, the peer's limits back; max_frame only goes down."""

from __future__ import annotations

from typing import Annotated, Final, TypeVar

import msgspec

from penstock.kernel.errors import Malformed
from penstock.wire.oap.frame import (
    COMP,
    CONTROL,
    END,
    EVENT,
    FRAME_BYTES_MAX,
    REQ,
    RESP,
    START,
    VERSION,
    Frame,
)

_T = TypeVar("_T")

MAX_INFLIGHT: Final = 64
# Below this a frame could not even carry a token and a short request.
MAX_FRAME_MIN: Final = 16 << 10
# ACK_REQ and APP_E2E are known (never refused) but nothing here acts on them, so they are not promised.
FLAGS_SUPPORTED: Final = REQ | RESP | EVENT | START | END | COMP

MaxFrame = Annotated[int, msgspec.Meta(ge=MAX_FRAME_MIN, le=FRAME_BYTES_MAX)]


class Hello(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the opener says; fields it does not know are ignored, because HELLO is how versions meet."""

    ua: Annotated[str, msgspec.Meta(max_length=256)] = ""
    max_frame: MaxFrame | None = None


class Welcome(msgspec.Struct, frozen=True):
    """What the other side answers: its limits, already lowered to what the opener asked for."""

    max_frame: MaxFrame = FRAME_BYTES_MAX
    max_inflight: Annotated[int, msgspec.Meta(ge=1, le=65535)] = MAX_INFLIGHT
    flags_supported: int = FLAGS_SUPPORTED
    versions: tuple[int, ...] = (VERSION,)
    transports: tuple[str, ...] = ("unix", "tcp")


_hello = msgspec.json.Decoder(Hello)
_welcome = msgspec.json.Decoder(Welcome)


def hello_frame(hello: Hello, corr_id: int, *, tenant_id: int = 0) -> Frame:
    """Build the opening frame: control protocol, REQ alone, no stream."""
    return Frame(REQ, corr_id, tenant_id=tenant_id, payload=msgspec.json.encode(hello))


def welcome_frame(welcome: Welcome, corr_id: int) -> Frame:
    """Build the answer to HELLO."""
    return Frame(RESP, corr_id, code=200, payload=msgspec.json.encode(welcome))


def read_hello(frame: Frame) -> Hello:
    """Read the opener's HELLO."""
    _check_control(frame, REQ)
    return _decode(_hello, frame.payload)


def read_welcome(frame: Frame) -> Welcome:
    """Read the answer to our HELLO; a peer that does not speak this version is refused."""
    _check_control(frame, RESP)
    welcome = _decode(_welcome, frame.payload)
    if VERSION not in welcome.versions:
        raise Malformed("The peer does not speak OAP/1.", reason="bad_hello")
    return welcome


def lowered(max_frame: int, hello: Hello) -> int:
    """Settle max_frame after a HELLO: the smaller of the two, never more than before."""
    return max_frame if hello.max_frame is None else min(max_frame, hello.max_frame)


def _check_control(frame: Frame, kind: int) -> None:
    if frame.app_proto_id != CONTROL or frame.flags & ~(START | END) != kind:
        raise Malformed("This is not a HELLO frame.", reason="bad_hello")


def _decode(decoder: msgspec.json.Decoder[_T], payload: bytes) -> _T:
    try:
        return decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise Malformed(f"HELLO cannot be read: {exc}", reason="bad_hello") from exc
