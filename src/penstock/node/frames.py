"""A service's contract for other processes: OAP/1 on a private socket in the data directory, and on TCP if set."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.contracts import dht, interop, mailbox_rules, passport, storage
from penstock.kernel.child import ChildSpec, Drain
from penstock.kernel.errors import Busy, NotReady, PenstockError
from penstock.kernel.log import Log
from penstock.net.oap.server import OapServer
from penstock.net.oap.service import OapServerOptions, OapService
from penstock.rpc.oap import serve

if TYPE_CHECKING:
    from penstock.contracts.call import Call
    from penstock.contracts.dht import Dht
    from penstock.contracts.interop import Interop
    from penstock.contracts.mailbox import Mailbox
    from penstock.contracts.method import Method
    from penstock.contracts.storage import Storage
    from penstock.kernel.inventory import Inventory
    from penstock.node.build import Node
    from penstock.services.passport.api import PassportApi

CONNECTIONS_MAX: Final = 128
"""A gateway's calls, and apart from them its long polls."""
# A whole body of the gateway's, and what stands around it.
_REQUEST_BYTES_MAX: Final = (1 << 20) + (64 << 10)
# What fits into `sockaddr_un` everywhere, with its final zero.
_PATH_BYTES_MAX: Final = 103


@dataclass(frozen=True, slots=True)
class Framed:
    """A contract to be served, and the error that new calls get while it drains."""

    service: OapService
    draining: Callable[[], PenstockError] = lambda: NotReady("The service is draining.", phase="draining")


def framed_mailbox(api: Mailbox) -> Framed:
    """Answer the mailbox's contract."""
    return Framed(serve(mailbox_rules.METHODS, api), lambda: Busy("The mailbox is draining.", queue="work"))


def framed_storage(api: Storage) -> Framed:
    """Answer the store's contract."""
    return Framed(serve(storage.METHODS, api))


def framed_dht(api: Dht) -> Framed:
    """Answer the contract of provider discovery."""
    return Framed(serve(dht.METHODS, api))


def framed_interop(api: Interop) -> Framed:
    """Answer the contract of the bridge."""
    return Framed(serve(interop.METHODS, api))


def framed_passport(api: PassportApi) -> Framed:
    """Answer the issuer's contract; a large batch needs a token, as over HTTP."""
    plain = serve(passport.METHODS, api)

    async def batch(value: passport.VerifyBatch, call: Call) -> passport.VerifiedBatch:
        await api.check_batch_allowed(len(value.items), call.capability)
        return await api.verify_batch(value, call)

    def handle(method: Method, value: Any, call: Call) -> object:  # noqa: ANN401 - typed by the table
        return batch(value, call) if method.name == "verify_batch" else plain.handle(method, value, call)

    return Framed(OapService(methods=passport.METHODS, handle=handle))


def socket_beside(data_dir: Path, table: str) -> Path:
    """Name the socket of a service that runs alone on this data directory."""
    return data_dir.absolute() / "run" / f"{table}.sock"


def frame_children(node: Node, table: str, inventory: Inventory, framed: Framed) -> list[ChildSpec]:
    """Describe the endpoints of a service: none beside the others of a node, unless an address is given."""
    settings = node.settings.value
    common = OapServerOptions(
        max_conns=CONNECTIONS_MAX,
        request_bytes_max=_REQUEST_BYTES_MAX,
        request_deadline_s=settings.seconds(f"{table}.request_deadline"),
        uds_allow_uids=settings.integers(f"{table}.uds.allow_uids"),
        draining_error=framed.draining,
    )
    places = {}
    path = _socket(node, table)
    if path is not None:
        places["oap_listener"] = replace(common, uds_path=path)
    address = settings.address_or_none(f"{table}.oap_addr")
    if address is not None:
        places["oap_tcp_listener"] = replace(common, name="oap_tcp", host=address.host, port=address.port)
    return [_child(name, node, inventory, options, framed) for name, options in places.items()]


def _child(name: str, node: Node, inventory: Inventory, options: OapServerOptions, framed: Framed) -> ChildSpec:
    server = OapServer(inventory, options, [framed.service], budget=node.budget.share())
    return ChildSpec(name, server.run, drain=Drain.STOP_INTAKE, announces=True)


def _socket(node: Node, table: str) -> Path | None:
    settings = node.settings.value
    folder = settings.path("node.data_dir")
    if not node.serves_alone or settings.flag("node.amnesia") or folder is None:
        return None
    path = socket_beside(folder, table)
    if len(os.fsencode(path)) > _PATH_BYTES_MAX:
        Log(table).warning("oap_socket.left_out", why=f"the path is too long for a socket; set {table}.oap_addr")
        return None
    return path
