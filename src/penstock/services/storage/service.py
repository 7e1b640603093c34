"""The wiring of svc-storage: what it is made of, as child specs in start order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.capability.verifier import CapabilityVerifier
from penstock.kernel.child import ChildSpec, Drain
from penstock.kernel.supervisor import SupervisorOptions
from penstock.net.bearer import admit_bearers
from penstock.net.server.listener import Listener
from penstock.net.server.listener_config import listener_options
from penstock.net.server.stranger_quota import known_by
from penstock.services.storage.api import StorageApi
from penstock.services.storage.authority import StorageAuthority
from penstock.services.storage.committer import Committer
from penstock.services.storage.engines.disk import RealStorageDisk
from penstock.services.storage.engines.engine import ObjectEngine
from penstock.services.storage.engines.ram import RamStorageDisk
from penstock.services.storage.pack_writer import PackWriter
from penstock.services.storage.reaper import Reaper
from penstock.services.storage.routes import StorageRoutes
from penstock.services.storage.store import ObjectStore
from penstock.services.storage.store_owner import OPEN_S, StoreOwner
from penstock.services.storage.uploads import Uploads

if TYPE_CHECKING:
    from penstock.contracts.capability import Verifier
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.limiter import ByteBudget
    from penstock.services.storage.config import StorageOptions
    from penstock.services.storage.engines.disk import StorageDisk

SERVICE: Final = "svc-storage"


class StorageService:
    """A keeper, the pack writer, the committers, a listener in front; the disk behind bounded pools."""

    def __init__(
        self,
        inventory: Inventory,
        options: StorageOptions,
        budget: ByteBudget | None = None,
        *,
        verifier: Verifier | None = None,
        disk: StorageDisk | None = None,
    ) -> None:
        """Declare everything; nothing runs yet. Without a verifier nothing is checked: for `insecure_dev` alone."""
        self._options = options
        self.store = ObjectStore(
            inventory, options, ObjectEngine(disk or make_disk(options), packed_max=options.packed_max)
        )
        authority = StorageAuthority(verifier, public_read=options.public_read)
        self.uploads = Uploads(self.store, inventory.clock.monotonic)
        self.api = StorageApi(self.store, self.uploads, authority)
        self._keeper = StoreOwner(self.store)
        self._committer = Committer(self.store)
        self.pack_writer = PackWriter(self.store)
        self._reaper = Reaper(self.store, self.uploads)
        self.routes = StorageRoutes(self.store, authority).routes()
        self.listener: Listener | None = None
        if options.listener is not None:
            # Who shows no token is refused at the end of the headers, before a byte of a body is read.
            admission = None if verifier is None else admit_bearers
            self.listener = Listener(
                inventory, listener_options(options.listener), self.routes, budget=budget, admission=admission,
                known=known_by(verifier) if isinstance(verifier, CapabilityVerifier) else None,
            )  # fmt: skip

    def children(self) -> list[ChildSpec]:
        """List what this service runs, in start order; it stops in reverse."""
        commits = self.store.commits
        children = [
            # First, so that it ends last: what the others give up is still removed.
            ChildSpec(
                "keeper", self._keeper.run, critical=True, drain=Drain.FINISH, announces=True,
                consumes=(self.store.discards,),
            ),
            ChildSpec(
                "committer", self._committer.run, instances=len(commits), critical=True, drain=Drain.FINISH,
                consumes=lambda index: (commits[index],),
            ),
            ChildSpec(
                "pack_writer", self.pack_writer.run, critical=True, drain=Drain.FINISH,
                consumes=(self.store.small_puts,),
            ),
            ChildSpec("reaper", self._reaper.run),
        ]  # fmt: skip
        if self.listener is not None:
            # Last: it starts when everything behind it runs, and stops taking work first.
            children.append(
                ChildSpec("listener", self.listener.run, critical=True, drain=Drain.STOP_INTAKE, announces=True)
            )
        return children

    def supervision(self) -> SupervisorOptions:
        """Say how long the drain may take, and how long counting what is stored."""
        return SupervisorOptions(drain_deadline_s=self._options.drain_deadline_s, start_deadline_s=OPEN_S)

    async def close(self) -> None:
        """End the threads, after the supervisor ended everything else."""
        self.uploads.close()
        await self.store.close()


def make_disk(options: StorageOptions) -> StorageDisk:
    """Make the disk the options name."""
    return RamStorageDisk() if options.directory is None else RealStorageDisk(options.directory)
