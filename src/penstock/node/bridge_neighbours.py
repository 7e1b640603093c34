"""The services behind the bridge: in the same process, at a URL, or at their sockets in the data directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.capability.token import decode
from penstock.contracts.call import Call
from penstock.contracts.passport import Attest, Issued
from penstock.kernel.errors import NotReady
from penstock.net.oap.client import OapClientOptions
from penstock.node.frames import socket_beside
from penstock.rpc.oap import remote_mailbox, remote_passport, remote_storage
from penstock.rpc.remote import Remote, RemoteOptions, oap_place
from penstock.services.interop.authority import issuer_request
from penstock.services.interop.service import SERVICE

if TYPE_CHECKING:
    from penstock.contracts.mailbox import Mailbox
    from penstock.contracts.passport import Attested, Passport
    from penstock.contracts.storage import Storage
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.pool import Pool
    from penstock.node.build import Node
    from penstock.sdk.calling import Caller

T = TypeVar("T")
_OAP: Final = "oap:"
# A little more than the longest deadline of the bridge's own calls.
_CALL_S: Final = 6.0
_READ_S: Final = 2.0


class BridgeNeighbours:
    """Finds svc-mailbox, svc-passport and svc-storage for svc-interop, and the right to ask for its own token."""

    def __init__(self, node: Node, inventory: Inventory, pool: Pool) -> None:
        """Look for each; nothing is dialled before the first call."""
        self._node = node
        self._inventory = inventory
        self._pool = pool
        self._remotes: list[Remote | Caller] = []
        self.mailbox = node.mailbox or self._find_mailbox()
        self.passport = node.passport or self._find_passport()
        self.storage = node.storage or self._find_storage()

    # --- where they are ----------------------------------------------------------------------------------------------

    def _find_mailbox(self) -> Mailbox | None:
        found = self._find("mailbox")
        if found is None or isinstance(found, Remote):
            return None if found is None else remote_mailbox(found)
        from penstock.sdk.http_mailbox import HttpMailbox  # noqa: PLC0415 - see _caller

        return HttpMailbox(found)

    def _find_passport(self) -> Passport | None:
        found = self._find("passport")
        if found is None or isinstance(found, Remote):
            return None if found is None else remote_passport(found)
        from penstock.sdk.http_passport import HttpPassport  # noqa: PLC0415 - see _caller

        return HttpPassport(found)

    def _find_storage(self) -> Storage | None:
        found = self._find("storage")
        return remote_storage(found) if isinstance(found, Remote) else None

    def _find(self, table: str) -> Remote | Caller | None:
        settings = self._node.settings.value
        said = None if settings[f"interop.downstream.{table}"] is None else settings.text(f"interop.downstream.{table}")
        if said is not None and not said.startswith(_OAP):
            return self._keep(self._caller(table, said))
        place = oap_place(said) if said is not None else self._beside(table)
        if place is None:
            return None
        most = settings.integer("interop.workers") * 2
        limits = RemoteOptions(
            calls_max=most, call_timeout_s=_CALL_S, absent=absent_behind(table) if said is None else ""
        )
        return self._keep(Remote(self._inventory, place, limits))

    def _keep(self, made: T) -> T:
        self._remotes.append(made)  # type: ignore[arg-type]  # both kinds are closed alike
        return made

    def _beside(self, table: str) -> OapClientOptions | None:
        settings = self._node.settings.value
        folder = settings.path("node.data_dir")
        if not self._node.serves_alone or settings.flag("node.amnesia") or folder is None:
            return None
        return OapClientOptions(uds_path=socket_beside(folder, table))

    def _caller(self, table: str, url: str) -> Caller:
        # Only a bridge that calls over HTTP needs the SDK, which is large: a whole node starts without it.
        from penstock.sdk.calling import Caller, SdkOptions  # noqa: PLC0415
        from penstock.sdk.remote_place import RemotePlace  # noqa: PLC0415

        certificate = self._node.settings.value.path("interop.downstream.certificate")
        # One try: the bridge's own calls decide about another. Every call brings its own capability.
        options = SdkOptions(timeout_s=_CALL_S, connections_max=16, tries_max=1)
        return Caller(f"svc-{table}", RemotePlace(url, ca=certificate), self._inventory, options)

    # --- by what right -----------------------------------------------------------------------------------------------

    @property
    def holds_token(self) -> bool:
        """Tell whether the bridge was given a token of its own: only the operator makes issuers, and may be far."""
        return bool(self._node.settings.value.secrets("interop.issuer_token"))

    async def mint(self) -> Issued:
        """Return the bridge's own token: the one it was given, else one that svc-passport issues for the operator."""
        given = self._node.settings.value.secrets("interop.issuer_token")
        if given:
            return _issued(given[0].reveal().strip())
        return await self._issuer().issue(issuer_request(), Call(await self._operator()))

    async def mint_for(self, tenant: str) -> Issued:
        """Return a token by which the bridge issues for this tenant."""
        return await self._issuer().issue(issuer_request(tenant), Call(await self._operator()))

    async def attest(self, n: int, head: str) -> Attested:
        """Have svc-passport vouch for the bridge's audit: a service's own token may not ask for that."""
        return await self._issuer().attest(Attest(SERVICE, n, head), Call(await self._operator()))

    def _issuer(self) -> Passport:
        if self.passport is None:
            raise NotReady(absent_behind("passport"), phase="absent", service="svc-passport")
        return self.passport

    async def _operator(self) -> str:
        settings = self._node.settings.value
        folder = settings.path("node.data_dir")
        if not self._node.serves_alone or folder is None:
            return self._node.operator_token()
        # It may be issued anew while this service runs.
        return await self._pool.run("operator_token", _READ_S, _read_token, folder / "operator.token")

    async def close(self) -> None:
        """Close the connections, after the bridge has ended."""
        for remote in self._remotes:
            await remote.close()


def _issued(token: str) -> Issued:
    """Say of a token that was given what svc-passport says of one it issues."""
    root = decode(token).root
    return Issued(token, root.kid, root.alg, root.epoch, root.exp, ())


def _read_token(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as exc:
        raise NotReady(
            f"{path} cannot be read: start svc-passport, or set interop.issuer_token.", phase="passport"
        ) from exc


def absent_behind(table: str) -> str:
    """Return the error for a service that was not found, with the key that says where it is."""
    return f"svc-{table} does not run here; set interop.downstream.{table} to say where it is."
