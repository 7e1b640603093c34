"""A small object on its way into a pack: its bytes, what it holds of the quota and the places, and its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from penstock.contracts.storage import Stored
from penstock.kernel.errors import PenstockError, forget_where
from penstock.net.promise import Promise
from penstock.wire.ids import format_address

if TYPE_CHECKING:
    from penstock.kernel.limiter import Limiter
    from penstock.services.storage.engines.engine import Outcome
    from penstock.services.storage.ledger import QuotaLedger

Form = Callable[[Stored], object]


class PackedPut(Promise):
    """Crosses the `pack` channel and is kept by the step that learns what became of it. Whoever takes it ends it."""

    __slots__ = ("_form", "_ledger", "_places", "_reserved_bytes", "began", "data", "digest", "taken")

    op = "put"

    def __init__(self, digest: bytes, data: bytes, began: float, form: Form | None = None) -> None:
        """Hold nothing yet; `form` says what the answer is made of, by default the contract's own value."""
        super().__init__()
        self.digest = digest
        self.data = data
        self.began = began
        self.taken = False
        self._form = form
        self._ledger: QuotaLedger | None = None
        self._places: Limiter | None = None
        self._reserved_bytes = 0

    def hold(self, ledger: QuotaLedger, places: Limiter, reserved_bytes: int) -> None:
        """Answer for a place and for promised bytes from now on."""
        self._ledger, self._places, self._reserved_bytes = ledger, places, reserved_bytes

    def take(self) -> bool:
        """Claim it for the writer; False when nobody waits any more."""
        self.taken = not self.done
        return self.taken

    def stored(self) -> None:
        """Turn what was promised into what is stored."""
        assert self._ledger is not None
        self._ledger.stored(len(self.data))
        self._reserved_bytes -= len(self.data)

    def close(self) -> None:
        """Give back what is held; a second call does nothing."""
        ledger, places = self._ledger, self._places
        self._ledger = self._places = None
        if ledger is not None and places is not None:
            ledger.release(self._reserved_bytes)
            places.release()

    def keep(self, outcome: Outcome) -> None:
        """Answer that the object is stored."""
        stored = Stored(format_address(self.digest), len(self.data), existed=outcome == "existed")
        self.resolve(stored if self._form is None else self._form(stored))

    def fail(self, error: PenstockError) -> None:
        """Answer with an error."""
        self.resolve(forget_where(error))

    def cancel(self) -> None:
        """Give up: what the writer has not taken is withdrawn, the rest goes on without anybody waiting."""
        super().cancel()
        if not self.taken:
            self.close()

    async def wait(self) -> Stored:
        """Wait for the answer and raise it if it is an error."""
        if not self.done:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.follow(partial(_wake, future))
            try:
                await future
            except asyncio.CancelledError:
                self.cancel()
                raise
        if isinstance(self.result, PenstockError):
            raise self.result
        assert isinstance(self.result, Stored)
        return self.result


def _wake(future: asyncio.Future[None], _result: object) -> None:
    if not future.done():
        future.set_result(None)
