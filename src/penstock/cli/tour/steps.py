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
_SENDERS: Final = 16
_SENDS_BEFORE_DRAIN: Final = 200
# The same in every tour: content is kept once, and there is nothing to tidy.
_OBJECT: Final = b"".join(b"line %d of an object that the tour keeps\n" % number for number in range(1000))


async def _tokens(stage: TourContext, client: Client) -> None:
    topic, elsewhere = stage.topic("orders"), stage.topic("invoices")
    broad = await stage.mint(client, "svc-mailbox", "op=send,recv,ack,nack", f"topic={stage.name}/")
    verdict = await client.passport.verify(broad)
    stage.check("mint a token for the mailbox and have it judged", verdict.ok, should=True)
    less = narrow(broad, "op=send", f"topic={topic}")
    stage.told(
        "narrow it offline to op=send on one topic", f"{len(less)} characters", ok=less != broad, should="another"
    )
    async with stage.holder(less) as holder:
        sent = await holder.mailbox.send(topic, "a narrowed token may do this")
        stage.told("send to that topic with the narrowed one", f"stored as {sent.msg_id}", ok=True, should="stored")
        await stage.refused("receive with it", holder.mailbox.recv(topic), "forbidden")
        await stage.refused("send elsewhere with it", holder.mailbox.send(elsewhere, "x"), "forbidden")
    async with stage.holder("psp1_forged") as stranger:
        await stage.refused("try a forged token", stranger.mailbox.send(topic, "x"), "unauthenticated")
    await client.mailbox.purge(topic)


async def _one(client: Client, topic: str) -> Envelope:
    """Take one message, waiting for it."""
    messages = await client.mailbox.recv(topic, wait_ms=5000, visibility_ms=30_000)
    if not messages:
        raise NotFound(f"No message came from {topic}.")
    return messages[0]


async def _round_trip(stage: TourContext, client: Client) -> None:
    topic = stage.topic("round-trip")
    sent = await client.mailbox.send(topic, "hello", attrs={"from": "the tour"})
    stage.told("send a message", f"stored as {sent.msg_id}", ok=not sent.duplicate, should="a new message")
    first = await _one(client, topic)
    stage.check("receive it: bytes and attrs", (first.payload, first.attrs), (b"hello", {"from": "the tour"}))
    stage.check("receive again while it is leased", await client.mailbox.recv(topic), ())
    await client.mailbox.nack(first, "try again", delay_ms=0)
    again = await _one(client, topic)
    stage.check("nack it and receive: the same, attempt 2", (again.msg_id, again.attempt), (sent.msg_id, 2))
    await stage.refused("ack it with the receipt of the first lease", client.mailbox.ack(first), "conflict")
    await client.mailbox.ack(again)
    stage.check("ack it: it never comes back", await client.mailbox.recv(topic), ())


async def _ordering(stage: TourContext, client: Client) -> None:
    topic = stage.topic("keys")
    for key, payload in (("a", "a1"), ("a", "a2"), ("b", "b1")):
        await client.mailbox.send(topic, payload, key=key)
    first = await client.mailbox.recv(topic, max_messages=10, wait_ms=1000)
    came = sorted(message.payload.decode() for message in first)
    stage.check("send a1, a2 with key a and b1 with key b, receive all", came, ["a1", "b1"])
    for message in first:
        await client.mailbox.ack(message)
    second = await _one(client, topic)
    stage.check("ack them: the key's next message follows", second.payload.decode(), "a2")
    await client.mailbox.ack(second)


async def _idempotency(stage: TourContext, client: Client) -> None:
    topic = stage.topic("once")
    first = await client.mailbox.send(topic, "once", idem_key="order-1")
    repeat = await client.mailbox.send(topic, "once", idem_key="order-1")
    stage.check("send twice with one idem_key", (repeat.duplicate, repeat.msg_id), (True, first.msg_id))
    other = client.mailbox.send(topic, "something else", idem_key="order-1")
    await stage.refused("send other content with it", other, "conflict")
    stage.check("count what is stored", (await client.mailbox.topic(topic)).ready, 1)


async def _poison(stage: TourContext, client: Client) -> None:
    topic, attempts = stage.topic("poison"), 0
    await client.mailbox.send(topic, "nobody can digest this")
    for attempts in range(1, _ATTEMPTS_MAX):  # noqa: B007 - the count is what is shown
        message = await _one(client, topic)
        if (await client.mailbox.nack(message, "indigestible", delay_ms=0)).dead_lettered:
            break
    page = await client.mailbox.dlq(topic)
    told = [(entry.reason, entry.attempts) for entry in page.entries]
    stage.check(f"nack a message {attempts} times: a dead letter", told, [("rejected:indigestible", attempts)])
    stage.check("count what a redrive would send back", await client.mailbox.reprocess(topic, dry_run=True), 1)
    await client.mailbox.reprocess(topic)
    back = await _one(client, topic)
    stage.check("redrive it: attempts begin anew", (back.payload, back.attempt), (b"nobody can digest this", 1))
    await client.mailbox.ack(back)


async def _consumer(stage: TourContext, client: Client) -> None:
    topic, seen = stage.topic("slow"), list[int]()
    await client.mailbox.send(topic, "work that outlasts its lease")
    # A lease that a busy machine can renew in time: what is shown is the renewal, not how fast the machine is.
    consumer = client.mailbox.consume(topic, visibility_ms=3000, wait_ms=1000)
    async for delivery in consumer:
        async with delivery as message:
            seen.append(message.attempt)
            await asyncio.sleep(4.0)  # lint: allow PK010 the work, within the time of its step
            stage.check("work 4 s on a lease of 3 s; others receive", await client.mailbox.recv(topic), ())
        consumer.stop()
    stage.check("the consumer renewed it: delivered once, acked", (seen, await client.mailbox.recv(topic)), ([1], ()))


async def _objects(stage: TourContext, client: Client) -> None:
    stored = await client.storage.put(_OBJECT)
    stage.check(f"put {len(_OBJECT)} bytes: their BLAKE3 is the address", stored.address, address_of(_OBJECT))
    stage.check("put them again: it is the same object", (await client.storage.put(_OBJECT)).existed, should=True)
    stage.check("ask how large it is", (await client.storage.head(stored.address)).size, len(_OBJECT))
    part = await client.storage.get(stored.address, offset=1000, length=100)
    stage.check("get bytes 1000-1099", part == _OBJECT[1000:1100], should=True)
    whole = await client.storage.get(stored.address)
    stage.check("get the whole and check its address", address_of(whole), stored.address)
    await stage.refused("get what is not there", client.storage.get(address_of(b"never put")), "not_found")


async def _revocation(stage: TourContext, client: Client) -> None:
    topic, clock = stage.topic("revoked"), asyncio.get_running_loop().time
    token = await stage.mint(client, "svc-mailbox", "op=send", f"topic={topic}")
    claims = (await client.passport.verify(token)).claims
    async with stage.holder(token) as holder:
        await holder.mailbox.send(topic, "still good")
        stage.told("send with a token", "stored", ok=claims is not None, should="stored")
        await client.passport.revoke(tid="" if claims is None else claims.tid, reason="shown on the tour")
        revoked_at = clock()
        refusal = None
        while refusal is None and clock() - revoked_at < _REVOKED_WITHIN_S:
            refusal = await _refusal(holder, topic)
        late_ms = round((clock() - revoked_at) * 1000)
        stage.told(
            "revoke it and go on sending",
            f"{refusal or 'still taken'} after {late_ms} ms",
            ok=refusal == "revoked",
            should=f"revoked within {_REVOKED_WITHIN_S:g} s",
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
        """Tell a polite refusal from a door that closed before it was reached."""
        if error.code in ("busy", "not_ready"):
            self.refused += 1
        else:
            self.unanswered += 1
            self.closed = True


async def _drain_under(client: Client, load: _Load, node: TourNode) -> None:
    """Stop the node while everybody sends; returns when the last sender has found its door closed."""
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


async def _drain(stage: TourContext, _client: Client) -> None:
    with TemporaryDirectory() as directory:
        load = _Load()
        with TourNode(directory) as node:
            async with Client(node.place, SdkOptions(tries_max=1)) as client:
                await _drain_under(client, load, node)
            code, words = node.last_words()
        with TourNode(directory) as again:
            async with Client(again.place) as client:
                found = sum(stats.ready + stats.inflight for stats in await client.mailbox.topics())
    stage.told(
        f"SIGTERM to a node of our own while {_SENDERS} senders send",
        f"{load.stored} stored, {load.refused} told to come back, {load.unanswered} found it closed",
        ok=load.stored >= _SENDS_BEFORE_DRAIN,
        should=f"at least {_SENDS_BEFORE_DRAIN} stored",
    )
    stage.check("wait for its end: exit code, tasks cut off", (code, words.get("aborted")), (0, []))
    # One more would have been admitted and not answered, one less answered and lost.
    stage.check("start it again and count its messages", found, load.stored)


STEPS: Final = (
    TourStep("A token opens what it names; its holder can narrow it offline", _tokens, ("passport", "mailbox")),
    TourStep("A message is delivered until it is acked", _round_trip, ("mailbox",)),
    TourStep("Messages with one key come in order, one at a time", _ordering, ("mailbox",)),
    TourStep("Sending twice with one idem_key is sending once", _idempotency, ("mailbox",)),
    TourStep("What keeps failing becomes a dead letter, and can be sent back", _poison, ("mailbox",)),
    TourStep("A consumer keeps its lease while its handler works", _consumer, ("mailbox",)),
    TourStep("An object lies under the hash of its bytes", _objects, ("storage",)),
    TourStep("A revoked token is refused everywhere", _revocation, ("passport", "mailbox")),
    TourStep("Under overload every class has its share", overload, ("omnigate",)),
    TourStep("A node told to stop answers what it has admitted", _drain, ("mailbox",)),
)
