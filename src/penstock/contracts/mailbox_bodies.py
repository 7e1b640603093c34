"""Settlements as HTTP bodies: one or many, and what the path already says. Pure."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from penstock.contracts import mailbox as m
from penstock.contracts.handler_error import HandlerError
from penstock.kernel.errors import Malformed


class AckIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One ack, or `acks` with up to 256."""

    msg_id: m.MsgId | None = None
    receipt: m.Receipt | None = None
    acks: tuple[m.Ack, ...] | None = None


class NackIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One nack, or `nacks` with up to 256."""

    msg_id: m.MsgId | None = None
    receipt: m.Receipt | None = None
    reason: Annotated[str, Meta(max_length=256)] | None = None
    delay_ms: m.DelayMs | None = None
    error: HandlerError | None = None
    uncounted: bool = False
    final: bool = False
    nacks: tuple[m.Nack, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse a message that is dead and comes again."""
        m.check_final(final=self.final, uncounted=self.uncounted, delay_ms=self.delay_ms)


class ExtendIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One extension, or `extends` with up to 256."""

    msg_id: m.MsgId | None = None
    receipt: m.Receipt | None = None
    visibility_ms: m.VisibilityMs | None = None
    extends: tuple[m.Extend, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse a lease that is too short."""
        m.check_visibility_ms(self.visibility_ms)


class AckOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The ack of the message that the path names."""

    receipt: m.Receipt


class NackOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The nack of the message that the path names."""

    receipt: m.Receipt
    reason: Annotated[str, Meta(max_length=256)] | None = None
    delay_ms: m.DelayMs | None = None
    error: HandlerError | None = None
    uncounted: bool = False
    final: bool = False

    def __post_init__(self) -> None:
        """Refuse a message that is dead and comes again."""
        m.check_final(final=self.final, uncounted=self.uncounted, delay_ms=self.delay_ms)


class ExtendOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The extension of the message that the path names."""

    receipt: m.Receipt
    visibility_ms: m.VisibilityMs


# The forms of each body as they are described: what the path names a message for, and one or many.
_FORM: Final = "application/x-www-form-urlencoded"
_FORMS: Final[dict[object, tuple[type, type, type]]] = {
    AckIn: (AckOf, m.Ack, m.AckBatch),
    NackIn: (NackOf, m.Nack, m.NackBatch),
    ExtendIn: (ExtendOf, m.Extend, m.ExtendBatch),
}


def forms_of(body: type | None, *, in_path: bool) -> tuple[type, ...]:
    """List the forms of a settlement's body; nothing for another body. `in_path`: the path names the message."""
    forms = _FORMS.get(body, ())
    return forms[:1] if in_path else forms[1:]


def kind_attrs(kind: str | None) -> dict[str, str]:
    """Return what a raw send keeps of its Content-Type: not that of a form, which `curl -d` says of any bytes."""
    return {} if kind is None or kind.lower().startswith(_FORM) else {"content-type": kind}


def as_ack(body: AckIn | m.AckBatch, msg_id: str | None) -> m.Ack | m.AckBatch:
    """Read one ack or many."""
    if isinstance(body, m.AckBatch):
        _alone(msg_id)
        return body
    if body.acks is not None:
        _alone(body.msg_id or body.receipt or msg_id)
        return m.AckBatch(body.acks)
    return m.Ack(*_named(body, msg_id))


def as_nack(body: NackIn | m.NackBatch, msg_id: str | None) -> m.Nack | m.NackBatch:
    """Read one nack or many."""
    if isinstance(body, m.NackBatch):
        _alone(msg_id)
        return body
    if body.nacks is not None:
        _alone(
            body.msg_id
            or body.receipt
            or body.reason
            or body.delay_ms is not None
            or body.error
            or body.uncounted
            or body.final
            or msg_id
        )
        return m.NackBatch(body.nacks)
    return m.Nack(*_named(body, msg_id), body.reason, body.delay_ms, body.error, body.uncounted, body.final)


def as_extend(body: ExtendIn | m.ExtendBatch, msg_id: str | None) -> m.Extend | m.ExtendBatch:
    """Read one extension or many."""
    if isinstance(body, m.ExtendBatch):
        _alone(msg_id)
        return body
    if body.extends is not None:
        _alone(body.msg_id or body.receipt or body.visibility_ms is not None or msg_id)
        return m.ExtendBatch(body.extends)
    if body.visibility_ms is None:
        raise Malformed("Object missing required field `visibility_ms`")
    return m.Extend(*_named(body, msg_id), body.visibility_ms)


def _alone(other: object) -> None:
    if other:
        raise Malformed("A list of settlements stands alone in its body.")


def _named(body: AckIn | NackIn | ExtendIn, msg_id: str | None) -> tuple[str, str]:
    """Return msg_id and receipt; a msg_id in path and body must be the same."""
    found = body.msg_id if msg_id is None else msg_id
    if found is None or (body.msg_id is not None and body.msg_id != found):
        raise Malformed("Object missing required field `msg_id`, or it is not the one of the path.")
    if body.receipt is None:
        raise Malformed("Object missing required field `receipt`")
    return found, body.receipt
