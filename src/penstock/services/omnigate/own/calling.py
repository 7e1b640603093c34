"""From a request at the gateway to a contract call, with the caller's capability and origin."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from penstock.contracts.call import Call, Origin
from penstock.kernel.errors import Malformed, NotReady
from penstock.net.bearer import bearer
from penstock.services.omnigate.config import BEHIND
from penstock.wire.plain_words import fault_facts, plain_fault

if TYPE_CHECKING:
    from penstock.net.message import Request

T = TypeVar("T")


class DownstreamCalls(Protocol):
    """One service behind the gateway: its limiter, breaker, deadline and latency around each call."""

    async def call(self, op: str, work: Callable[[], Awaitable[T]], *, idempotent: bool) -> T:
        """Do the work under the downstream's limiter, breaker and deadline."""


def call_of(request: Request) -> Call:
    """Return the metadata of a call. The service behind checks `route`, `method` and `ip` caveats on it.

    `charged` tells that budgets and rates were counted here, once.
    """
    origin = Origin(request.method, "/" + "/".join(request.segments), request.peer.host, charged=True)
    return Call(bearer(request), request.corr_id, request.traceparent or "", origin=origin)


def present(service: T | None, name: str) -> T:
    """Return a service, or raise `NotReady` with the key that says where it is."""
    if service is None:
        raise NotReady(absent(name), phase="absent", service=name)
    return service


def absent(name: str) -> str:
    """Return the error for a service that is not set up, with the key that says where it is."""
    short = name.removeprefix("svc-")
    told = f"; set omnigate.downstream.{short} to say where it is." if short in BEHIND else "."
    return f"{name} does not run here{told}"


def convert(value: Mapping[str, object], kind: type[T]) -> T:
    """Read a value from a path, a query or fields by the same rules as a body; numbers come as text there."""
    try:
        return msgspec.convert(value, kind, strict=False, builtin_types=(bytes,))
    except msgspec.ValidationError as exc:
        raise Malformed(plain_fault(str(exc), kind), **fault_facts(str(exc))) from exc


def text_of(value: bytes | None) -> str | None:
    """Read a field as text."""
    if value is None:
        return None
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise Malformed("A header is not UTF-8.") from exc
