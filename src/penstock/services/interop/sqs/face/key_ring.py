"""The access keys in force: those of the sealed file, which the operator makes and revokes, and those of the settings.

Every change is made in RAM first, in one step, and then written by the one thread of a pool. That thread writes in the
order of the changes, and each time all the keys there are, so the file ends up as the last change left it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.kernel.errors import Conflict, DownstreamUnavailable, Integrity, NotFound, PenstockError
from penstock.kernel.log import Log
from penstock.services.interop.sqs.face.access_keys import (
    ALL_QUEUES,
    DEFAULT_NAME,
    ID_BYTES,
    OPS,
    SECRET_BYTES,
    AccessKey,
    key_id_of,
    secret_of,
)

if TYPE_CHECKING:
    from penstock.kernel.inventory import Inventory
    from penstock.services.interop.sqs.face.key_file import KeyFile

FILE_S: Final = 5.0
KEYS_MAX: Final = 1024


class KeyRing:
    """Knows every access key; the one writer of their file."""

    def __init__(self, inventory: Inventory, file: KeyFile | None, configured: Iterable[AccessKey] = ()) -> None:
        """Take where the keys lie; None keeps them in RAM, for a node that forgets."""
        self._file = file
        self._pool = inventory.pool("sqs_key_file", threads=1, capacity=16)
        inventory.timeout("sqs_key_file", FILE_S, "503 downstream_unavailable")
        inventory.limit("sqs_keys", KEYS_MAX, "more: 409 conflict", lambda: {"in_use": len(self._stored)})
        self._wall: Callable[[], float] = inventory.clock.wall
        self._log = Log(inventory.service)
        self._gate = inventory.health.gate("sqs_keys", is_open=False)
        self._stored: list[AccessKey] = []
        self._configured: dict[str, AccessKey] = {}
        self._by_id: dict[str, AccessKey] = {}
        self.configure(configured)

    def configure(self, configured: Iterable[AccessKey]) -> None:
        """Take the keys of the settings, in place of those before."""
        self._configured = {key.id: key for key in configured}
        self._index()

    def _index(self) -> None:
        # A key of the settings wins over one of the file with the same id.
        self._by_id = {key.id: key for key in self._stored} | self._configured

    async def open(self) -> None:
        """Read the file, and make a first key if there is none. One that does not open shuts the gate and stays."""
        if self._file is not None:
            try:
                self._stored = await self._pool.run("sqs_key_file", FILE_S, self._file.read)
            except (Integrity, OSError) as error:
                self._log.error("sqs_keys.unread", error=error)
                self._gate.set(is_open=False, why="interop/sqs_keys does not open; move it away to make new keys")
                return
        self._index()
        if not any(key.name == DEFAULT_NAME for key in self._stored):
            await self._make_default()
        self._gate.set(is_open=True)

    @property
    def is_open(self) -> bool:
        """Tell whether the keys are known; until then nobody can be told that a key is unknown."""
        return self._gate.open

    async def _make_default(self) -> None:
        self._add(self._new(DEFAULT_NAME))
        try:
            await self._write()
        except PenstockError as error:
            # A full disk does not keep the face from working; another key is then made at the next start.
            self._log.warning("sqs_keys.unwritten", reason=error.code)

    # --- looking ------------------------------------------------------------------------------------------------------

    def secret(self, key_id: str) -> str | None:
        """Return the secret of a key that is in force."""
        key = self._by_id.get(key_id)
        return None if key is None else key.secret

    def get(self, key_id: str) -> AccessKey | None:
        """Return a key that is in force."""
        return self._by_id.get(key_id)

    def default(self) -> AccessKey | None:
        """Return the key that a newcomer is told."""
        return next((key for key in self._stored if key.name == DEFAULT_NAME), None)

    def all(self) -> list[AccessKey]:
        """List the keys in force, oldest first."""
        return sorted(self._by_id.values(), key=lambda key: (key.made_at, key.id))

    # --- changing -----------------------------------------------------------------------------------------------------

    async def create(
        self, name: str = "", *, ops: tuple[str, ...] = OPS, topics: tuple[str, ...] = ALL_QUEUES, tenant: str = ""
    ) -> AccessKey:
        """Make a key; one that cannot be written is none."""
        if len(self._stored) >= KEYS_MAX:
            raise Conflict("There are as many access keys as there may be; revoke one.", reason="keys_max")
        key = msgspec.structs.replace(self._new(name), ops=ops, topics=topics, tenant=tenant)
        self._add(key)
        try:
            await self._write()
        except PenstockError:
            self._remove(key.id)
            raise
        return key

    def _new(self, name: str) -> AccessKey:
        return AccessKey(
            id=key_id_of(os.urandom(ID_BYTES)),
            secret=secret_of(os.urandom(SECRET_BYTES)),
            name=name,
            made_at=int(self._wall()),
        )

    def _add(self, key: AccessKey) -> None:
        self._stored = [*self._stored, key]
        self._index()

    def _remove(self, key_id: str) -> None:
        self._stored = [key for key in self._stored if key.id != key_id]
        self._index()

    async def revoke(self, key_id: str) -> AccessKey:
        """Take a key out of force at once, and out of the file."""
        found = next((key for key in self._stored if key.id == key_id), None)
        if found is None:
            said = "This key comes from the settings; take it out there." if key_id in self._configured else ""
            raise NotFound(said or "There is no such access key.")
        self._remove(key_id)
        await self._write()
        return found

    async def _write(self) -> None:
        if self._file is None:
            return
        try:
            await self._pool.run("sqs_key_file", FILE_S, self._file.write, list(self._stored))
        except OSError as exc:
            raise DownstreamUnavailable("The file of access keys cannot be written.", reason="disk") from exc

    async def close(self) -> None:
        """Let the thread go; safe to call twice."""
        await self._pool.close()
