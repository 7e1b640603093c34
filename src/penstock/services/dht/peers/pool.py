"""One link a proven peer, used both ways: asking, dialling, keeping alive, forgetting.

`ask` never waits. Where a link is open the request goes out at once; otherwise the peer is dialled and the request
follows, and its age includes the connecting. Whoever asked may lose interest: the request stays pending at its link,
and its outcome still teaches the node about the peer's speed and health.

Two nodes may dial each other at the same moment. Both keep the link that the node with the smaller id dialled, so they
agree without a word; the other is closed once its requests have had their time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from penstock.kernel.deadline import no_deadline, timeout
from penstock.kernel.errors import Busy, PenstockError, Timeout
from penstock.kernel.limiter import TokenBucket
from penstock.services.dht.core.ids import bucket_of
from penstock.services.dht.core.link_spread import LinkRank, region_of
from penstock.services.dht.core.lookup import ProbeFailure
from penstock.services.dht.core.peer_book import SlowPoint
from penstock.services.dht.peers.dialing import address_class, may_dial
from penstock.services.dht.peers.kept_links import KeptLinks
from penstock.services.dht.peers.link import Done, PeerLink, PeerReply
from penstock.services.dht.peers.links_ahead import LinksAhead
from penstock.services.dht.peers.proving import HELLO_S
from penstock.services.dht.protocol.envelope import DhtEnvelope, Opcode
from penstock.services.dht.protocol.messages import EMPTY, DhtAnswer, id_request

if TYPE_CHECKING:
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.scope import Scope
    from penstock.services.dht.core.contact import Contact
    from penstock.services.dht.peers.proving import Prover
    from penstock.services.dht.state import DhtState

DIALS_MAX: Final = 256
WAITING_A_DIAL_MAX: Final = 64
DIALS_A_NAMER: Final = 20.0
NAMERS_MAX: Final = 1024
PER_ADDRESS_OUT: Final = 8
PING_S: Final = 45.0
IDLE_S: Final = 60.0
STUCK_S: Final = 5.0
UPKEEP_S: Final = 5.0
HINT_S: Final = 1.0
QUIET_S: Final = 10.0
OPS: Final = {
    Opcode.FIND_NODE: "find_node", Opcode.FIND_VALUE: "find_value", Opcode.PROVIDE: "provide", Opcode.PING: "ping",
}  # fmt: skip


class PeerPool:
    """The links of one node."""

    def __init__(self, inventory: Inventory, state: DhtState, prover: Prover) -> None:
        options = state.options
        self.group_private = options.group_private
        self._kept = KeptLinks(options.peer_conns, options.k)
        self.links = self._kept.by_peer  # changed by `_kept` alone
        self.silent = False  # a swarm's black hole
        # Set by the service: who answers requests, and who hears of contacts that answered or failed.
        self.on_request: Callable[[PeerLink, DhtEnvelope], None] = lambda _link, _envelope: None
        self.on_newcomer: Callable[[PeerLink], None] = lambda _link: None
        self.on_failed: Callable[[Contact], None] = lambda _contact: None
        self.on_verified: Callable[[int], None] = lambda _peer: None
        self._state = state
        self._prover = prover
        self._rng = random.Random()  # noqa: S311 - jitter
        self._all: set[PeerLink] = set()  # every link, proven or not, and retired ones
        self._dials: dict[int, list[tuple[int, bytes, Done, float]]] = {}
        self._namers: dict[int, TokenBucket] = {}
        self.ahead = LinksAhead(state, self._kept, self.ask)
        self._scope: Scope | None = None
        inventory.timeout("peer_connect", HELLO_S, "the peer counts as unreachable")
        inventory.timeout("rpc", options.rpc_timeout_s, "the probe failed; io_timeouts_total")
        inventory.timeout("peer_idle", IDLE_S, "the connection is closed")
        inventory.limit(
            "peer_conns", options.peer_conns, "the least recently used is closed", lambda: {"in_use": len(self.links)}
        )
        metrics = inventory.metrics
        metrics.gauge("dht_peer_links", "Proven peer connections.", read=lambda: len(self.links))
        self._timeouts = {
            op: metrics.counter("io_timeouts_total", "Operations that took too long.", op=op)
            for op in ("read", "write", "connect", *OPS.values())
        }
        self._malformed = {
            what: metrics.counter("dht_malformed_total", "Messages that could not be read.", what=what)
            for what in ("frame", "hello", "answer", "oversized", "unproven")
        }

    # --- what links need ------------------------------------------------------------------------------------

    def serve(self, link: PeerLink, envelope: DhtEnvelope) -> None:
        """Hand a request on."""
        self.on_request(link, envelope)

    def lost(self, link: PeerLink) -> None:
        """Forget a link that is gone."""
        self._all.discard(link)
        if self._kept.drop(link) and link.left:
            self.ahead.closed_by_peer(link.peer)

    def malformed(self, what: str) -> None:
        """Count something that could not be read."""
        self._malformed[what].value += 1

    def seconds(self) -> int:
        """Return the wall clock in seconds."""
        return self._state.wall_ms() // 1000

    def make_link(self, *, dialled: bool) -> PeerLink:
        """Make a link that is not proven yet."""
        link = PeerLink(self, dialled=dialled)
        link.silent = self.silent
        self._all.add(link)
        return link

    @property
    def connections(self) -> int:
        """Return how many connections there are, proven or not."""
        return len(self._all)

    # --- asking -----------------------------------------------------------------------------------------------

    def slow_point(self, peer: int) -> SlowPoint:
        """Say when a probe of a peer is slow; one that has to connect first has longer."""
        return self._state.book.slow_point(peer, connecting=peer not in self.links)

    @property
    def near_enough(self) -> int:
        """Look for an open link among all that are worth asking before somebody is dialled."""
        return self._state.options.k

    def connected(self, peer: int) -> bool:
        """Tell whether a link is open to a peer that answers, and owes no answer for longer than it usually takes."""
        link = self.links.get(peer)
        if link is None or peer in self._state.book.failing:
            return False
        waiting_s = link.waiting_s
        return not waiting_s or waiting_s <= self._state.book.slow_point(peer).after_s

    def callers(self, target: int, count: int) -> list[Contact]:
        """Return the linked peers nearest to a target that are no contacts of ours.

        They connected to us and listen, or were dialled when their bucket had no room.
        """
        found: list[Contact] = []
        for link in islice(self._kept.nearest(target), 2 * count):
            contact = link.contact or next(iter(link.listen), None)
            if contact is not None and not self._is_contact(link.peer) and self.connected(link.peer):
                found.append(contact)
                if len(found) >= count:
                    break
        return found

    def proved_at(self, contact: Contact) -> bool:
        """Tell whether the contact's address was dialled and its id proved; a link it dialled shows no address."""
        link = self.links.get(contact.id)
        if link is not None and link.contact is not None and link.contact.address == contact.address:
            return True
        table = self._state.table
        return table.views[bucket_of(table.own, contact.id)].by_id.get(contact.id) == contact

    def ask(self, contact: Contact, opcode: Opcode, payload: bytes, done: Done, namer: int = 0) -> None:
        """Send a request to a contact, dialling it if need be; `done` is called once with what came of it."""
        now = self._state.monotonic()
        if not self._state.book.may_ask(contact.id, now):
            done(ProbeFailure.USELESS)
            return
        link = self.links.get(contact.id)
        heard = partial(self._settle, contact, opcode, namer, now, done)
        if link is not None and link.is_open:
            link.request(opcode, payload, heard, self._state.options.rpc_timeout_s)
        else:
            self._ask_by_dial(contact, (opcode, payload, heard, now), namer)

    def _settle(  # noqa: PLR0913, PLR0917 - all but the reply are bound before
        self, contact: Contact, opcode: Opcode, namer: int, began: float, done: Done, reply: PeerReply
    ) -> None:
        """Learn from an outcome, then pass it on."""
        state, now = self._state, self._state.monotonic()
        if isinstance(reply, DhtAnswer):
            state.book.answered(contact.id, now - began, now)
        elif reply is ProbeFailure.REFUSED:
            state.book.forgo(contact.id)
        else:
            if reply is ProbeFailure.TIMEOUT:
                self._timeouts[OPS[opcode]].value += 1
            state.book.failed(contact.id, now, elapsed_s=now - began)
            self.on_failed(contact)
            self._hint(namer, contact.id, now)
        done(reply)

    def _hint(self, namer: int, failed: int, now: float) -> None:
        """Tell whoever named a dead node, once a second at most; it will ping the node itself."""
        link = self.links.get(namer)
        if link is not None and link.is_open and now - link.hinted_at >= HINT_S:
            link.hinted_at = now
            link.send(Opcode.DOWN_HINT, 1, 1, id_request(failed))

    # --- dialling -----------------------------------------------------------------------------------------------

    def _ask_by_dial(self, contact: Contact, request: tuple[Opcode, bytes, Done, float], namer: int) -> None:
        waiting = self._dials.get(contact.id)
        if waiting is not None:
            if len(waiting) < WAITING_A_DIAL_MAX:
                waiting.append(request)
            else:
                request[2](ProbeFailure.REFUSED)
            return
        if self._scope is None or not self._may_dial(contact, namer):
            request[2](ProbeFailure.USELESS if self._scope is not None else ProbeFailure.CUT)
            return
        self._dials[contact.id] = [request]
        try:
            self._scope.start(self._dial_and_send(contact))
        except Busy:
            self._flush(contact.id, ProbeFailure.REFUSED)

    def _may_dial(self, contact: Contact, namer: int) -> bool:
        """Apply the rules for addresses that others named, and how many one namer may have us dial."""
        if not may_dial(contact.host, contact.port, self._state.options.host):
            return False
        if address_class(contact.host) == "global" and self._links_to(contact.host) >= PER_ADDRESS_OUT:
            return False
        return not namer or self._namer_bucket(namer).try_take(self._state.monotonic())

    def _links_to(self, host: str) -> int:
        return sum(link.dialled and link.host == host for link in self._all)

    def _namer_bucket(self, namer: int) -> TokenBucket:
        bucket = self._namers.pop(namer, None)
        if bucket is None:
            bucket = TokenBucket("dials", rate=DIALS_A_NAMER, depth=DIALS_A_NAMER, now=self._state.monotonic())
            if len(self._namers) >= NAMERS_MAX:
                del self._namers[next(iter(self._namers))]
        self._namers[namer] = bucket
        return bucket

    async def _dial_and_send(self, contact: Contact) -> None:
        failure = ProbeFailure.CUT
        try:
            with no_deadline():
                await self.dial(contact.host, contact.port, contact.id)
        except Timeout:
            failure = ProbeFailure.TIMEOUT
            self._timeouts["connect"].value += 1
        except (OSError, PenstockError):
            failure = ProbeFailure.USELESS
        finally:
            self._flush(contact.id, failure)

    def _flush(self, peer: int, failure: ProbeFailure) -> None:
        """Send what waited for a dial, or fail it; each request has what is left of its own time."""
        link, now = self.links.get(peer), self._state.monotonic()
        for opcode, payload, done, began in self._dials.pop(peer, ()):
            left_s = began + self._state.options.rpc_timeout_s - now
            if link is None or not link.is_open:
                done(failure)
            elif left_s <= 0:
                done(ProbeFailure.TIMEOUT)
            else:
                link.request(opcode, payload, done, left_s)

    async def dial(self, host: str, port: int, expected: int | None = None) -> PeerLink:
        """Connect to an address and prove both ends; raises what went wrong. Reuses no link."""
        loop, state = asyncio.get_running_loop(), self._state
        link = self.make_link(dialled=True)
        began = state.monotonic()
        try:
            async with timeout("connect", HELLO_S):
                # The link outlives this dial and whoever asked for it.
                with no_deadline():
                    await loop.create_connection(lambda: link, host, port)
                await self._prover.introduce(link, self._listen_addresses(), expected)
        except BaseException:
            self._all.discard(link)
            link.abort()
            raise
        if not link.is_open:
            raise ConnectionResetError("the peer hung up while its proof was verified")
        # Three messages crossed: half of the time is about a round trip.
        state.book.sample((state.monotonic() - began) / 2)
        link.contact = state.contact_of(link.peer, host, port)
        self.adopt(link)
        return self.links.get(link.peer, link)

    def _listen_addresses(self) -> list[tuple[str, int]]:
        return [(self._state.options.host, self._state.port)]

    def adopt(self, link: PeerLink) -> None:
        """Take a proven link; of two to the same peer the one stays that the smaller id dialled, or the newer."""
        if not link.is_open:
            # Its peer hung up while the proof was verified. Nobody would ever take a dead link out again.
            return
        link.region = region_of(self._state.own, link.peer)
        held = self.links.get(link.peer)
        if held is None or not held.is_open or link.dialler == held.dialler or link.dialler < held.dialler:
            self._kept.put(link)
            loser = held
        else:
            loser = link
        if loser is not None and loser.is_open:
            kept = self.links[link.peer]
            kept.contact = kept.contact or loser.contact
            kept.listen = kept.listen or loser.listen
            loser.retire(self._state.options.rpc_timeout_s)
        if len(self.links) > self._state.options.peer_conns:
            self._make_room(link)
        if not link.dialled:
            self.on_newcomer(link)

    def _make_room(self, newest: PeerLink) -> None:
        """Close the links that lookups miss least, as many as there are too many."""
        now = self._state.monotonic()
        for _ in range(len(self.links) - self._state.options.peer_conns):
            link = self._kept.superfluous(newest, self._state.book.failing, partial(self._rank, now))
            if link is None:
                return
            self._kept.drop(link)
            link.close()

    def _rank(self, now: float, link: PeerLink) -> LinkRank:
        return LinkRank(
            stranger=not self._is_contact(link.peer),
            quiet=now - link.heard_at > QUIET_S,
            unused_s=now - link.used_at,
        )

    def _is_contact(self, peer: int) -> bool:
        table = self._state.table
        return peer in table.views[bucket_of(table.own, peer)].by_id

    # --- upkeep -------------------------------------------------------------------------------------------------

    async def run(self, child: Child) -> None:
        """Own the dials; look after the links until the end."""
        self._scope = child.scope("dial", DIALS_MAX)
        try:
            while not await child.shutdown.sleep(UPKEEP_S * self._rng.uniform(0.8, 1.2)):
                now = self._state.monotonic()
                self._look_after(now)
                self.ahead.open(now)
        finally:
            self._scope = None
            for peer in list(self._dials):
                self._flush(peer, ProbeFailure.CUT)
            if child.shutdown.draining:
                self.cut_all()

    def cut_all(self) -> None:
        """Abort every connection."""
        for link in list(self._all):
            link.abort()

    def fall_silent(self, *, silent: bool) -> None:
        """Become a black hole, or stop being one: connections stay open, nothing is answered."""
        self.silent = silent
        for link in list(self._all):
            link.silent = silent
            if not silent:
                link.abort()

    def _look_after(self, now: float) -> None:
        for link in list(self._all):
            if link.stuck_since is not None and now - link.stuck_since > STUCK_S:
                self._timeouts["write"].value += 1
                link.abort()
            elif link.owed_since is not None and now - link.owed_since > STUCK_S:
                self._timeouts["read"].value += 1
                link.abort()
            elif now - link.heard_at > IDLE_S and not link.pending:
                link.close()
        for link in list(self.links.values()):
            if link.contact is not None and now - link.heard_at > PING_S * self._rng.uniform(0.8, 1.2):
                self.ask(link.contact, Opcode.PING, EMPTY, partial(self._verified, link.peer))

    def _verified(self, peer: int, reply: PeerReply) -> None:
        """Count the answer to a keep-alive as a verification of the contact."""
        if isinstance(reply, DhtAnswer):
            self.on_verified(peer)
