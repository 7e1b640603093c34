"""svc-dht: who provides a key. Values and the Protocol. Pure."""

from __future__ import annotations

from typing import Annotated, Final, Protocol

import msgspec

from penstock.contracts.call import NOBODY, Call
from penstock.contracts.method import Method, Methods

DhtKey = Annotated[str, msgspec.Meta(pattern="^(b3:)?[0-9a-fA-F]{64}$", min_length=64, max_length=67)]
NodeIdText = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$", min_length=64, max_length=64)]
ProviderAddress = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class Provide(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Announce that this node provides a key. Without `addrs` the node's own peer address is announced."""

    key: DhtKey
    addrs: Annotated[list[ProviderAddress], msgspec.Meta(min_length=1, max_length=16)] | None = None
    ttl_s: Annotated[int, msgspec.Meta(ge=60, le=172_800)] | None = None


class Provider(msgspec.Struct, frozen=True):
    """One that provides a key: where it is reached, and until when its word holds (Unix milliseconds)."""

    node_id: NodeIdText
    addrs: tuple[str, ...]
    seq: int
    issued_at: int
    expires_at: int


class Provided(msgspec.Struct, frozen=True):
    """The record that was published, how many nodes store it by now, and how many have not answered yet."""

    record: Provider
    stored: int
    pending: int
    hops: int
    elapsed_ms: float


class Withdraw(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Stop announcing a key, and tell those who store the announcement."""

    key: DhtKey


class Find(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Ask who provides a key.

    Without `limit` the first verified set is the answer; with it the lookup goes on until so many are found. `paths` 3
    asks along three disjoint paths and wants two of them to agree.
    """

    key: DhtKey
    limit: Annotated[int, msgspec.Meta(ge=1, le=64)] | None = None
    wait_ms: Annotated[int, msgspec.Meta(ge=50, le=10_000)] = 2000
    paths: Annotated[int, msgspec.Meta(ge=1, le=3)] = 1


class Providers(msgspec.Struct, frozen=True):
    """Those that were found; none is an answer too. `complete` says that everybody worth asking was asked."""

    key: str
    providers: tuple[Provider, ...]
    hops: int
    path: tuple[str, ...]
    messages: int
    elapsed_ms: float
    complete: bool


class FindNodes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask for the nodes nearest to an id."""

    node_id: DhtKey


class DhtNode(msgspec.Struct, frozen=True):
    """A node and where it is reached."""

    node_id: NodeIdText
    host: str
    port: int


class DhtNodes(msgspec.Struct, frozen=True):
    """The nearest nodes, nearest first."""

    nodes: tuple[DhtNode, ...]
    hops: int
    messages: int
    elapsed_ms: float
    complete: bool


class DhtStatusAsk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask how the node stands in the network."""


class DhtStatus(msgspec.Struct, frozen=True):
    """How the node stands in the network."""

    node_id: NodeIdText
    peer_addr: str
    phase: str
    ready: bool
    alone: bool
    reason: str
    contacts: int
    links: int
    network_nodes: float
    records_kept: int
    records_own: int
    eclipse_suspects: int


class DhtDone(msgspec.Struct, frozen=True):
    """Nothing more to say."""

    ok: bool = True


class DhtPing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dial an address and see who answers."""

    host: Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)]


class DhtPong(msgspec.Struct, frozen=True):
    """Who answered, and how long it took."""

    node_id: NodeIdText
    elapsed_ms: float


class Dht(Protocol):
    """What svc-dht does for the others."""

    async def provide(self, request: Provide, call: Call = NOBODY) -> Provided:
        """Sign and publish; answers once a majority of the nearest nodes stores it. NotReady before joining."""

    async def withdraw(self, request: Withdraw, call: Call = NOBODY) -> DhtDone:
        """Stop publishing, and tell who stores it; NotFound when this node does not provide the key."""

    async def find(self, request: Find, call: Call = NOBODY) -> Providers:
        """Look a key up; nobody providing it is an answer, Timeout only when nobody at all was reached in time."""

    async def nodes(self, request: FindNodes, call: Call = NOBODY) -> DhtNodes:
        """Find the nodes nearest to an id."""

    async def status(self, request: DhtStatusAsk, call: Call = NOBODY) -> DhtStatus:
        """Tell how the node stands."""

    async def ping(self, request: DhtPing, call: Call = NOBODY) -> DhtPong:
        """Dial an address and prove who is there."""


METHODS: Final = Methods(
    4,
    [
        Method(1, "provide", Provide, Provided, idempotent=True),
        Method(2, "withdraw", Withdraw, DhtDone),
        Method(3, "find", Find, Providers, idempotent=True),
        Method(4, "nodes", FindNodes, DhtNodes, idempotent=True),
        Method(5, "status", DhtStatusAsk, DhtStatus, idempotent=True),
        Method(6, "ping", DhtPing, DhtPong, idempotent=True),
    ],
    service="dht",
)
