"""The steps of the tour, in order. Each shows one promise; a step is taken where the node has what it needs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Final

from penstock.cli.tour.context import TourContext, TourStep
from penstock.cli.tour.gateway import overload
from penstock.cli.tour.node import TourNode
from penstock.contracts.mailbox import Envelope
from penstock.kernel.errors import NotFound, PenstockError
from penstock.kernel.scope import Scope
from penstock.sdk import Client, SdkOptions, narrow
from penstock.wire.ids import address_of

_REVOKED_WITHIN_S: Final = 5.0
_ATTEMPTS_MAX: Final = 100
_FINDS_MAX: Final = 100
_SENDERS: Final = 16
_SENDS_BEFORE_DRAIN: Final = 200
# Nothing here is about how fast a machine drains.
_DRAIN_LONGEST: Final = ("--set", "mailbox.drain_deadline=5s", "--set", "omnigate.drain_deadline=5s")
# The same in every tour: content is kept once, and there is nothing to tidy.
_OBJECT: Final = b"".join(b"line %d of an object that the tour keeps\n" % number for number in range(1000))


async def _tokens(tour: TourContext, client: Client) -> None:
    topic, elsewhere = tour.topic("orders"), tour.topic("invoices")
    broad = await tour.mint(client, "svc-mailbox", "op=send,recv,ack,nack", f"topic={tour.name}/")
    verdict = await client.passport.verify(broad)
    tour.check("issue a token for the mailbox and have it judged", verdict.ok, should=True)
    less = narrow(broad, "op=send", f"topic={topic}")
    tour.told(
        "narrow it offline to op=send on one topic", f"{len(less)} characters", ok=less != broad, should="another"
    )
    async with tour.holder(less) as holder:
        sent = await holder.mailbox.send(topic, "a narrowed token may do this")
        tour.told("send to that topic with the narrowed one", f"stored as {sent.msg_id}", ok=True, should="stored")
        await tour.refused("receive with it", holder.mailbox.recv(topic), "forbidden")
        await tour.refused("send elsewhere with it", holder.mailbox.send(elsewhere, "x"), "forbidden")
    async with tour.holder("psp1_forged") as stranger:
        await tour.refused("try a forged token", stranger.mailbox.send(topic, "x"), "unauthenticated")
    await client.mailbox.purge(topic)


async def _one(client: Client, topic: str) -> Envelope:
    """Take one message, waiting for it."""
    messages = await client.mailbox.recv(topic, wait_ms=5000, visibility_ms=30_000)
    if not messages:
        raise NotFound(f"No message came from {topic}.")
    return messages[0]


async def _round_trip(tour: TourContext, client: Client) -> None:
    topic = tour.topic("round-trip")
    sent = await client.mailbox.send(topic, "hello", attrs={"from": "the tour"})
    tour.told("send a message", f"stored as {sent.msg_id}", ok=not sent.duplicate, should="a new message")
    first = await _one(client, topic)
    tour.check("receive it: bytes and attrs", (first.payload, first.attrs), (b"hello", {"from": "the tour"}))
    tour.check("receive again while it is leased", await client.mailbox.recv(topic), ())
    await client.mailbox.nack(first, "try again", delay_ms=0)
    again = await _one(client, topic)
    tour.check("nack it and receive: the same, attempt 2", (again.msg_id, again.attempt), (sent.msg_id, 2))
    await tour.refused("ack it with the receipt of the first lease", client.mailbox.ack(first), "conflict")
    await client.mailbox.ack(again)
    tour.check("ack it: it never comes back", await client.mailbox.recv(topic), ())


async def _ordering(tour: TourContext, client: Client) -> None:
    topic = tour.topic("keys")
    for key, payload in (("a", "a1"), ("a", "a2"), ("b", "b1")):
        await client.mailbox.send(topic, payload, key=key)
    first = await client.mailbox.recv(topic, max_messages=10, wait_ms=1000)
    came = sorted(message.payload.decode() for message in first)
    tour.check("send a1, a2 with key a and b1 with key b, receive all", came, ["a1", "b1"])
    for message in first:
        await client.mailbox.ack(message)
    second = await _one(client, topic)
    tour.check("ack them: the key's next message follows", second.payload.decode(), "a2")
    await client.mailbox.ack(second)


async def _idempotency(tour: TourContext, client: Client) -> None:
    topic = tour.topic("once")
    first = await client.mailbox.send(topic, "once", idem_key="order-1")
    repeat = await client.mailbox.send(topic, "once", idem_key="order-1")
    tour.check("send twice with one idem_key", (repeat.duplicate, repeat.msg_id), (True, first.msg_id))
    other = client.mailbox.send(topic, "something else", idem_key="order-1")
    await tour.refused("send other content with it", other, "conflict")
    tour.check("count what is stored", (await client.mailbox.topic(topic)).ready, 1)


async def _poison(tour: TourContext, client: Client) -> None:
    topic, attempts = tour.topic("poison"), 0
    await client.mailbox.send(topic, "nobody can digest this")
    for attempts in range(1, _ATTEMPTS_MAX):  # noqa: B007 - the count is what is shown
        message = await _one(client, topic)
        if (await client.mailbox.nack(message, "indigestible", delay_ms=0)).dead_lettered:
            break
    page = await client.mailbox.dlq(topic)
    told = [(entry.reason, entry.attempts) for entry in page.entries]
    tour.check(f"nack a message {attempts} times: a dead letter", told, [("rejected:indigestible", attempts)])
    tour.check("count what a redrive would send back", await client.mailbox.reprocess(topic, dry_run=True), 1)
    await client.mailbox.reprocess(topic)
    back = await _one(client, topic)
    tour.check("redrive it: attempts begin anew", (back.payload, back.attempt), (b"nobody can digest this", 1))
    await client.mailbox.ack(back)


async def _consumer(tour: TourContext, client: Client) -> None:
    topic, seen = tour.topic("slow"), list[int]()
    await client.mailbox.send(topic, "work that outlasts its lease")
    lease_s, work_s = 3 * tour.patience, 4 * tour.patience
    consumer = client.mailbox.consume(topic, visibility_ms=round(lease_s * 1000), wait_ms=1000)
    async for delivery in consumer:
        async with delivery as message:
            seen.append(message.attempt)
            await asyncio.sleep(work_s)  # lint: allow PK010 the work, within the time of its step
            received = await client.mailbox.recv(topic)
            tour.check(f"work {work_s:g} s on a lease of {lease_s:g} s; others receive", received, ())
        consumer.stop()
    tour.check("the consumer renewed it: delivered once, acked", (seen, await client.mailbox.recv(topic)), ([1], ()))


async def _objects(tour: TourContext, client: Client) -> None:
    stored = await client.storage.put(_OBJECT)
    tour.check(f"put {len(_OBJECT)} bytes: their BLAKE3 is the address", stored.address, address_of(_OBJECT))
    tour.check("put them again: it is the same object", (await client.storage.put(_OBJECT)).existed, should=True)
    tour.check("ask how large it is", (await client.storage.head(stored.address)).size, len(_OBJECT))
    part = await client.storage.get(stored.address, offset=1000, length=100)
    tour.check("get bytes 1000-1099", part == _OBJECT[1000:1100], should=True)
    whole = await client.storage.get(stored.address)
    tour.check("get the whole and check its address", address_of(whole), stored.address)
    await tour.refused("get what is not there", client.storage.get(address_of(b"never put")), "not_found")


async def _discovery(tour: TourContext, client: Client) -> None:
    """Announce an object on this node, and have a second node find out who has it."""
    address = address_of(_OBJECT)
    seed = (await client.dht.status()).peer_addr
    made = await client.dht.provide(address, addrs=["tour:1"], ttl_s=60)
    tour.told("announce the object", f"kept by {made.stored} nodes", ok=made.stored >= 1, should="1 or more")
    with TourNode(arguments=("--set", f'dht.seeds=["{seed}"]')) as node:
        async with Client(node.place) as other:
            found = await _providers(other, address, wanted=1)
            tour.check("ask a second node who has it", found, ["tour:1"])
            await client.dht.withdraw(address)
            tour.check("withdraw it and ask again", await _providers(other, address, wanted=0), [])


async def _providers(client: Client, address: str, wanted: int) -> list[str]:
    """Find, until so many are found: a node that has just started may still be joining."""
    found: list[str] = []
    for _ in range(_FINDS_MAX):
        found = [addr for each in (await client.dht.find(address, limit=5)).providers for addr in each.addrs]
        if len(found) == wanted:
            break
        await asyncio.sleep(0.1)
    return found


async def _revocation(tour: TourContext, client: Client) -> None:
    topic, clock = tour.topic("revoked"), asyncio.get_running_loop().time
    token = await tour.mint(client, "svc-mailbox", "op=send", f"topic={topic}")
    claims = (await client.passport.verify(token)).claims
    async with tour.holder(token) as holder:
        await holder.mailbox.send(topic, "still good")
        tour.told("send with a token", "stored", ok=claims is not None, should="stored")
        await client.passport.revoke(tid="" if claims is None else claims.tid, reason="shown on the tour")
        revoked_at, within_s = clock(), _REVOKED_WITHIN_S * tour.patience
        refusal = None
        while refusal is None and clock() - revoked_at < within_s:
            refusal = await _refusal(holder, topic)
        late_ms = round((clock() - revoked_at) * 1000)
        tour.told(
            "revoke it and go on sending",
            f"{refusal or 'still taken'} after {late_ms} ms",
            ok=refusal == "revoked",
            should=f"revoked within {within_s:g} s",
        )


async def _refusal(holder: Client, topic: str) -> str | None:
    try:
        await holder.mailbox.send(topic, "x")
    except PenstockError as error:
        return str(error.facts.get("reason", error.code))
    return None


# --- drain under load


@dataclass(slots=True)
class _Load:
    """What became of the requests that were under way when the node was told to stop."""

    stored: int = 0
    refused: int = 0
    unanswered: int = 0
    closed: bool = False

    async def sender(self, client: Client, topic: str) -> None:
        """Send until the node is gone."""
        while not self.closed:
            try:
                await client.mailbox.send(topic, "under load")
                self.stored += 1
            except PenstockError as error:
                self.count(error)

    def count(self, error: PenstockError) -> None:
        """Count a refusal, or a connection that could no longer be made."""
        if error.code in ("busy", "not_ready"):
            self.refused += 1
        else:
            self.unanswered += 1
            self.closed = True


async def _drain_under(client: Client, load: _Load, node: TourNode) -> None:
    """Stop the node while many send; returns when every sender has found it closed."""
    senders = Scope("sender", _SENDERS, client.inventory.metrics)
    try:
        for number in range(_SENDERS):
            senders.start(load.sender(client, f"load/{number}"))
        while load.stored < _SENDS_BEFORE_DRAIN and not load.closed:  # noqa: ASYNC110 - nothing tells us
            await asyncio.sleep(0.01)  # lint: allow PK010 within the time of its step
        node.drain()
        await senders.join()
    finally:
        await senders.close()


async def _drain(tour: TourContext, _client: Client) -> None:
    with TemporaryDirectory() as directory:
        load = _Load()
        with TourNode(directory, _DRAIN_LONGEST) as node:
            async with Client(node.place, SdkOptions(tries_max=1)) as client:
                await _drain_under(client, load, node)
            code, words = node.last_words()
        with TourNode(directory) as again:
            async with Client(again.place) as client:
                found = sum(stats.ready + stats.inflight for stats in await client.mailbox.topics())
    tour.told(
        f"SIGTERM to a node of our own while {_SENDERS} senders send",
        f"{load.stored} stored, {load.refused} told to come back, {load.unanswered} found it closed",
        ok=load.stored >= _SENDS_BEFORE_DRAIN,
        should=f"at least {_SENDS_BEFORE_DRAIN} stored",
    )
    tour.check("wait for its end: exit code, tasks cut off", (code, words.get("aborted")), (0, []))
    # One more would have been admitted and not answered, one less answered and lost.
    tour.check("start it again and count its messages", found, load.stored)


STEPS: Final = (
    TourStep("A token opens what it names; its holder can narrow it offline", _tokens, ("passport", "mailbox")),
    TourStep("A message is delivered until it is acked", _round_trip, ("mailbox",)),
    TourStep("Messages with one key come in order, one at a time", _ordering, ("mailbox",)),
    TourStep("Sending twice with one idem_key is sending once", _idempotency, ("mailbox",)),
    TourStep("What keeps failing becomes a dead letter, and can be sent back", _poison, ("mailbox",)),
    TourStep("A consumer keeps its lease while its handler works", _consumer, ("mailbox",)),
    TourStep("An object lies under the hash of its bytes", _objects, ("storage",)),
    TourStep("Other nodes find out who has an object", _discovery, ("dht",)),
    TourStep("A revoked token is refused everywhere", _revocation, ("passport", "mailbox")),
    TourStep("Under overload every class has its share", overload, ("omnigate",)),
    TourStep("A node told to stop answers what it has admitted", _drain, ("mailbox",)),
)
