"""The HELLO of both ends: nonces, signatures, and the verification off the loop. All within one second."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from penstock.kernel.errors import Forbidden, Integrity
from penstock.services.dht.protocol import hello
from penstock.services.dht.protocol.envelope import REQ, RESP, Opcode

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.kernel.inventory import Inventory
    from penstock.kernel.pool import Pool
    from penstock.services.dht.peers.link import PeerLink
    from penstock.services.dht.state import DhtState

HELLO_S: Final = 1.0
INLINE_PER_S: Final = 100.0
INLINE_DEPTH: Final = 50.0


class Prover:
    """Proves this node to peers and peers to this node. Holds at most half of the verify pool."""

    def __init__(self, inventory: Inventory, state: DhtState, verify: Pool) -> None:
        self._state = state
        self._verify = verify
        # One signature costs less than the way to a thread and back: so many a second are verified in place.
        self._inline = inventory.bucket("hello_inline", rate=INLINE_PER_S, depth=INLINE_DEPTH)
        self._places = inventory.limiter("hello", max(1, (verify.capacity + verify.threads) // 2))

    async def greet(self, link: PeerLink) -> None:
        """Take the listener's part on an accepted connection; the link knows its peer afterwards."""
        state = self._state
        nonce = os.urandom(hello.NONCE_BYTES)
        link.send(Opcode.HELLO, 1, REQ, hello.greeting(nonce, state.own))
        said = hello.read_introduction(await link.next_hello(), group_private=state.options.group_private)
        transcript = hello.Transcript(nonce, said.nonce, state.own, said.dialler)
        await self._prove(hello.dialler_holds, said, transcript)
        if said.dialler == state.own:
            raise Forbidden("This is the node itself.", reason="own_id")
        link.send(Opcode.HELLO, 1, RESP, hello.confirmation(state.signer, transcript))
        link.listen = said.listen
        link.proven(said.dialler, said.dialler)

    async def introduce(self, link: PeerLink, listen: list[tuple[str, int]], expected: int | None) -> None:
        """Take the dialler's part; a listener with another id than expected is refused before anything is signed."""
        state = self._state
        greeted = hello.read_greeting(await link.next_hello())
        if greeted.listener == state.own or (expected is not None and greeted.listener != expected):
            raise Forbidden("Another node answers at this address.", reason="wrong_id")
        transcript = hello.Transcript(greeted.nonce, os.urandom(hello.NONCE_BYTES), greeted.listener, state.own)
        link.send(Opcode.HELLO, 2, RESP, hello.introduction(state.signer, transcript, listen))
        await self._prove(hello.listener_holds, await link.next_hello(), transcript)
        link.proven(greeted.listener, state.own)

    async def _prove(self, holds: Callable[..., bool], *said: object) -> None:
        if self._inline.try_take(self._state.monotonic()):
            proven = holds(*said)
        else:
            proven = await self._prove_on_a_thread(holds, *said)
        if not proven:
            raise Integrity("The peer's signature does not hold.", reason="bad_signature")

    async def _prove_on_a_thread(self, holds: Callable[..., bool], *said: object) -> bool:
        self._places.acquire_or_busy()
        try:
            return await self._verify.run("hello", HELLO_S, holds, *said)
        finally:
            self._places.release()
