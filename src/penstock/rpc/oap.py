"""Any contract over OAP/1: a stub that calls, and a service that answers, both made from the method table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from penstock.contracts import dht, interop, mailbox_rules, passport, storage
from penstock.contracts.call import NOBODY, Call
from penstock.contracts.dht import Dht
from penstock.contracts.interop import Interop
from penstock.contracts.mailbox import Mailbox
from penstock.contracts.method import Method, Methods
from penstock.contracts.passport import Passport
from penstock.contracts.storage import Storage
from penstock.net.oap.service import OapService
from penstock.rpc.pool import OapCaller


class Stub:
    """Has one coroutine method for each row of the table: `await stub.send(Send(...), call)`."""

    def __init__(self, client: OapCaller, methods: Methods) -> None:
        """Take a client; it is not owned, whoever made it closes it."""
        for method in methods.rows:
            setattr(self, method.name, _caller(client, methods, method.name))


def _caller(client: OapCaller, methods: Methods, name: str) -> Callable[..., Awaitable[Any]]:
    async def call(request: object, call: Call = NOBODY) -> Any:  # noqa: ANN401 - typed by the contract
        return await client.call(methods, name, request, call)

    return call


def serve(methods: Methods, implementation: object) -> OapService:
    """Answer a contract's requests by the methods of an object; a method that it lacks is found here."""
    handlers = {method.code: getattr(implementation, method.name) for method in methods.rows}

    def handle(method: Method, value: object, call: Call) -> object:
        return handlers[method.code](value, call)

    return OapService(methods=methods, handle=handle)


def remote_dht(client: OapCaller) -> Dht:
    """Reach svc-dht over this client."""
    return cast("Dht", Stub(client, dht.METHODS))


def remote_interop(client: OapCaller) -> Interop:
    """Reach svc-interop over this client."""
    return cast("Interop", Stub(client, interop.METHODS))


def remote_mailbox(client: OapCaller) -> Mailbox:
    """Reach svc-mailbox over this client."""
    return cast("Mailbox", Stub(client, mailbox_rules.METHODS))


def remote_passport(client: OapCaller) -> Passport:
    """Reach svc-passport over this client."""
    return cast("Passport", Stub(client, passport.METHODS))


def remote_storage(client: OapCaller) -> Storage:
    """Reach svc-storage over this client."""
    return cast("Storage", Stub(client, storage.METHODS))
