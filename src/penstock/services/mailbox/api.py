"""The mailbox contract: what other services and the framed protocol call. Authority first, then the dispatcher."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from penstock.contracts import mailbox as m
from penstock.contracts.call import NOBODY, Call
from penstock.contracts.handler_error import split_cause
from penstock.contracts.mailbox_batches import unread_in
from penstock.contracts.mailbox_rules import check_batch, size_of
from penstock.kernel.deadline import current_deadline
from penstock.kernel.errors import Malformed, NotFound, PenstockError
from penstock.net.promise import answer_of
from penstock.net.tracing import TRACER
from penstock.services.mailbox.agents.reprocessor import Redrive
from penstock.services.mailbox.authority import ANY_TOPIC
from penstock.services.mailbox.dead_remover import DeadRemover
from penstock.services.mailbox.engines.engine import DeadPage, EngineReads, TopicPage
from penstock.services.mailbox.ids import MessageName, read_msg_id
from penstock.services.mailbox.jobs import RequestMeta
from penstock.services.mailbox.rows import DeadRow, Loaded, MessageRow, MessageState
from penstock.services.mailbox.shards.topics import Topic
from penstock.services.mailbox.topic_admin import TopicAdmin
from penstock.services.mailbox.tracing import with_sender

if TYPE_CHECKING:
    from penstock.kernel.deadline import Deadline
    from penstock.net.promise import Promise
    from penstock.services.mailbox.agents.reprocessor import Reprocessor
    from penstock.services.mailbox.authority import MailboxAuthority
    from penstock.services.mailbox.state import MailboxParts

SettlementBatch = m.AckBatch | m.NackBatch | m.ExtendBatch
# Checks one request for an op, a topic and its bytes, as `MailboxAuthority.allow` and `admit` do.
Judge = Callable[[str, str | None, int], Awaitable[None] | None]

# How many topics are looked at in one step, and in how many steps for one page; of how many the disk is asked at once.
_LOOK: Final = 10
_LOOKS_MAX: Final = 1000
_COUNTED: Final = 50
_NO_COSTS: Final[Mapping[str | None, int]] = MappingProxyType({})


class MailboxApi:
    """Implements `penstock.contracts.mailbox.Mailbox`."""

    def __init__(self, parts: MailboxParts, authority: MailboxAuthority, reprocessor: Reprocessor) -> None:
        self._state = parts.state
        self._ledger = parts.state.ledger
        self._reader = parts.reader
        self._reads = parts.reader.reads
        self._writer = parts.writer
        self._dispatcher = parts.dispatcher
        self._authority = authority
        self._reprocessor = reprocessor
        # For callers in the same process that have no task to wait in.
        self.prompt = PromptApi(parts, authority)
        self._admin = TopicAdmin(parts)
        self._dead_remover = DeadRemover(parts)

    async def _allow(self, call: Call, op: str, topic: str | None, cost_bytes: int = 0) -> None:
        waiting = self._authority.allow(call, op, topic, cost_bytes)
        if waiting is not None:
            await waiting

    # --- send and recv

    async def send(self, request: m.Send, call: Call = NOBODY) -> m.Sent:
        """Store a message; answers when it is as durable as the engine promises."""
        await self._allow(call, "send", request.topic, size_of(request))
        if request.origin is not None:
            await self._allow(call, "admin", request.topic)
        self._note_sender(request.topic, call)
        if TRACER.sink is not None:
            request = with_sender(request, call.corr_id)
        sent: m.Sent = await answer_of(self._dispatcher.send(request, _meta(call)))
        return sent

    def _note_sender(self, name: str | None, call: Call) -> None:
        """Let a topic count for the tenant that is first seen sending to it."""
        topic = None if name is None else self._ledger.topics.get(name)
        if topic is not None and topic.tenant is None:
            topic.tenant = self._authority.tenant_of(call.capability)

    async def send_batch(self, request: m.SendBatch, call: Call = NOBODY) -> m.SentBatch:
        """Store many, each on its own."""
        return m.SentBatch(tuple(await self.send_many(request, call, _meta(call))))

    async def send_many(
        self,
        request: m.SendBatch,
        call: Call,
        meta: RequestMeta,
        judge: Judge | None = None,
    ) -> Any:  # noqa: ANN401 - typed by its caller
        """Store many; one the capability does not cover is refused alone, a token that is no good refuses all."""
        judge = judge or partial(self._authority.allow, call)
        await self._authority.authenticate(call, "send")
        check_batch(request.messages)
        refused: Mapping[int, PenstockError] = unread_in(request)
        if not self._authority.open:
            costs: Counter[str | None] = Counter()
            for send in request.messages:
                costs[send.topic] += size_of(send)
            topics = [send.topic for send in request.messages]
            refused = await self._judge_rest(judge, "send", topics, refused, costs)
            for topic in costs:
                self._note_sender(topic, call)
            if any(send.origin is not None for send in request.messages):
                refused = {**await self._moved_by_others(judge, request.messages), **refused}
        messages = request.messages
        if TRACER.sink is not None:
            messages = tuple(with_sender(send, call.corr_id) for send in messages)
        return await answer_of(self._dispatcher.send_batch(messages, meta, refused))

    async def _judge_rest(
        self,
        judge: Judge,
        op: str,
        topics: Sequence[str | None],
        unread: Mapping[int, PenstockError],
        costs: Mapping[str | None, int] = _NO_COSTS,
    ) -> Mapping[int, PenstockError]:
        """Check the capability for the items that could be read; returns all places that are refused."""
        if not unread:
            return await _refused(judge, op, topics, costs)
        places = [place for place in range(len(topics)) if place not in unread]
        found = await _refused(judge, op, [topics[place] for place in places], costs)
        return {**unread, **{places[index]: error for index, error in found.items()}}

    async def _moved_by_others(self, judge: Judge, sends: Sequence[m.Send]) -> dict[int, PenstockError]:
        """Refuse the messages that name an origin although the caller is no operator of their topic."""
        places = [place for place, send in enumerate(sends) if send.origin is not None]
        found = await _refused(judge, "admin", [sends[place].topic for place in places])
        return {places[place]: error for place, error in found.items()}

    async def recv(self, request: m.Recv, call: Call = NOBODY) -> m.Received:
        """Lease messages; waits up to `wait_ms` for the first."""
        await self._allow(call, "recv", request.topic)
        meta = _meta(call)
        if request.wait_ms:
            meta.rejudge = self._authority.watch(call, "recv", request.topic)
        job = self._dispatcher.recv(request, meta)
        try:
            received: m.Received = await answer_of(job.promise)
        except asyncio.CancelledError:
            self._dispatcher.give_back(job.got)
            raise
        return received

    # --- settlements

    async def ack(self, request: m.Ack, call: Call = NOBODY) -> m.Acked:
        """Acknowledge a message: it will not be delivered again."""
        answer: m.Acked = await self._settle("ack", request, call)
        return answer

    async def nack(self, request: m.Nack, call: Call = NOBODY) -> m.Nacked:
        """Give a message back before its lease ends; it is delivered again, later."""
        answer: m.Nacked = await self._settle("nack", request, call)
        return answer

    async def extend(self, request: m.Extend, call: Call = NOBODY) -> m.Extended:
        """Move the end of a lease."""
        answer: m.Extended = await self._settle("recv", request, call)
        return answer

    async def _settle(self, op: str, request: m.Settlement, call: Call) -> Any:  # noqa: ANN401 - typed by its caller
        await self._authority.authenticate(call, op)
        name = self._ledger.read_name(request.msg_id)
        await self._allow(call, op, await self.topic_of(name, request.receipt))
        return await answer_of(self._dispatcher.settle(request, name, _meta(call)))

    async def topic_of(self, name: MessageName | None, receipt: str) -> str | None:
        """Say which topic a message belongs to: a settlement is judged on that, not on what the caller says.

        Of a message that is gone the topic is not known. Whoever has its receipt was once given the message and can
        change nothing more, so the call is allowed to learn what became of it, whatever topics its capability names.
        """
        (found,) = self._dispatcher.topics_of((name,))
        if found is not None or name is None or self._authority.open:
            return found
        rows = await self._reader.ask(self._reads.rows, [name.seq])
        topic = self._ledger.by_id.get(rows[name.seq].topic) if name.seq in rows else None
        if topic is not None:
            return topic.name
        return ANY_TOPIC if self._dispatcher.gave_out(name, receipt) else None

    async def ack_batch(self, request: m.AckBatch, call: Call = NOBODY) -> m.SettledBatch:
        """Acknowledge many messages, each on its own."""
        return m.SettledBatch(tuple(await self.settle_many("ack", request, call, _meta(call))))

    async def nack_batch(self, request: m.NackBatch, call: Call = NOBODY) -> m.SettledBatch:
        """Give many back, each on its own."""
        return m.SettledBatch(tuple(await self.settle_many("nack", request, call, _meta(call))))

    async def extend_batch(self, request: m.ExtendBatch, call: Call = NOBODY) -> m.SettledBatch:
        """Move the ends of many leases, each on its own."""
        return m.SettledBatch(tuple(await self.settle_many("recv", request, call, _meta(call))))

    async def settle_many(
        self, op: str, request: SettlementBatch, call: Call, meta: RequestMeta, judge: Judge | None = None
    ) -> Any:  # noqa: ANN401 - typed by its caller
        """Settle many; one the capability does not cover is refused alone, a token that is no good refuses all."""
        judge = judge or partial(self._authority.allow, call)
        await self._authority.authenticate(call, op)
        items = settlements_of(request)
        check_batch(items)
        read = self._ledger.read_name
        names = [read(item.msg_id) for item in items]
        refused: Mapping[int, PenstockError] = unread_in(request)
        if not self._authority.open:
            topics = self._dispatcher.topics_of(names)
            if None in topics:
                # Nearly all are in RAM; only for the others the disk has to be asked.
                asked = zip(topics, items, names, strict=True)
                topics = [topic or await self.topic_of(name, item.receipt) for topic, item, name in asked]
            refused = await self._judge_rest(judge, op, topics, refused)
        return await answer_of(self._dispatcher.settle_batch(items, names, meta, refused))

    # --- looking

    async def topics(self, request: m.GetTopics, call: Call = NOBODY) -> m.TopicList:
        """Count the topics that the call may see, a page at a time."""
        await self._allow(call, "recv", ANY_TOPIC)
        self._state.check_ready()
        seen, cursor = await self._seen(request, call)
        stats: list[m.TopicStats] = []
        for start in range(0, len(seen), _COUNTED):
            stats += await self._stats_of(seen[start : start + _COUNTED])
        return m.TopicList(tuple(stats), cursor)

    async def _seen(self, request: m.GetTopics, call: Call) -> tuple[list[Topic], str | None]:
        """Find the topics of one page, and the cursor of the next.

        A few names are looked at in one step, so that nobody waits for a long list. A capability that covers few of
        many topics gets a short page and a cursor after so many looks.
        """
        ledger, after = self._ledger, request.cursor or ""
        seen: list[Topic] = []
        for _ in range(_LOOKS_MAX):
            names = ledger.topic_names.page(after, request.prefix, _LOOK)
            for name in names:
                topic, after = ledger.topics.get(name), name
                if topic is None or not _exists(topic):
                    continue
                if await self._authority.covers(call, "recv", name):
                    seen.append(topic)
                if len(seen) == request.limit:
                    break
            if len(names) < _LOOK or len(seen) == request.limit:
                break
            await asyncio.sleep(0)
        return seen, after if ledger.topic_names.page(after, request.prefix, 1) else None

    async def topic(self, request: m.GetTopic, call: Call = NOBODY) -> m.TopicStats:
        """Count one topic."""
        await self._allow(call, "recv", request.topic)
        return await self._stats(self._known(request.topic))

    def _known(self, name: str) -> Topic:
        self._state.check_ready()
        topic = self._ledger.topics.get(name)
        if topic is None or not _exists(topic):
            raise NotFound("There is no such topic.")
        return topic

    async def _stats(self, topic: Topic) -> m.TopicStats:
        (stats,) = await self._stats_of([topic])
        return stats

    async def _stats_of(self, topics: list[Topic]) -> list[m.TopicStats]:
        oldest = await self._reader.ask(_oldest, self._reads, [topic.id for topic in topics])
        return list(map(self._count, topics, oldest))

    def _count(self, topic: Topic, oldest: int | None) -> m.TopicStats:
        now = self._state.now()
        sends, recvs, acks = self._state.rates.of(topic, now.mono / 1000)
        return m.TopicStats(
            topic=topic.name,
            ready=max(0, topic.living - topic.inflight - topic.delayed),
            inflight=topic.inflight,
            delayed=topic.delayed,
            dlq=topic.dead,
            bytes=topic.bytes,
            oldest_age_s=0.0 if oldest is None else max(0, now.wall - oldest) / 1000,
            send_rate=sends,
            recv_rate=recvs,
            ack_rate=acks,
            paused=topic.settings.paused,
        )

    async def peek(self, request: m.Peek, call: Call = NOBODY) -> m.PeekedList:
        """Show messages of one state, or one message, without touching them; the cursor is the last one's seq."""
        await self._allow(call, "recv", request.topic)
        self._state.check_ready()
        after = _cursor(request.cursor)
        topic = self._ledger.topics.get(request.topic)
        if request.msg_id is not None:
            return m.PeekedList((await self._peek_one(topic, request.msg_id, with_payload=request.payload),))
        if topic is None or not topic.id:
            return m.PeekedList(())
        # Young leases are not on the disk yet, and this reads from there.
        await self._writer.flushed()
        page = TopicPage(topic.id, request.state, request.limit, self._state.now().wall, after)
        found, last = await self._reader.ask(self._reads.peek, page)
        shown = (self._peeked(each, topic, request.state, with_payload=request.payload) for each in found)
        return m.PeekedList(tuple(shown), None if last is None else str(last))

    async def _peek_one(self, topic: Topic | None, msg_id: str, *, with_payload: bool) -> m.Peeked:
        """Show one message. One of another topic is not found here, and nothing tells that it exists."""
        name = read_msg_id(msg_id)
        if topic is not None and topic.id and name is not None:
            await self._writer.flushed()
            found = await self._reader.ask(self._reads.peek_one, topic.id, name.seq, self._state.now().wall)
            if found is not None and found[0][0].msg_id == msg_id:
                return self._peeked(found[0], topic, found[1], with_payload=with_payload)
        raise NotFound("There is no such message in this topic.")

    def _peeked(self, loaded: Loaded, topic: Topic, shown: m.State, *, with_payload: bool) -> m.Peeked:
        row, state = loaded
        return m.Peeked(
            msg_id=row.msg_id,
            topic=topic.name,
            ts=row.ts,
            attrs=row.attrs,
            corr_id=row.corr_id,
            shard=row.slot % len(self._state.shards),
            attempt=0 if state is None else state.attempts,
            payload_hash=row.address,
            hash_chain=row.chain(topic.name),
            size=row.size,
            payload=row.payload if with_payload else None,
            key=row.key,
            idem_key=row.idem_key,
            visible_at=_visible_at(state, shown),
            redriven_from=row.redriven_from,
            group=row.group,
            meta=row.meta if with_payload else None,
            origin_id=None if row.origin is None else row.origin[0],
            origin_ts=None if row.origin is None else row.origin[1],
            first_at=None if state is None else state.first_at or None,
            state=shown,
        )

    # --- the operator

    async def purge(self, request: m.Purge, call: Call = NOBODY) -> m.Purged:
        """Remove the messages that wait or are leased now, slice by slice. Dead letters stay."""
        await self._allow(call, "admin", request.topic)
        return m.Purged(await self._admin.purge(request.topic))

    async def settings(self, request: m.GetSettings, call: Call = NOBODY) -> m.SettingsShown:
        """Show a topic's settings; NotFound when it has none of its own."""
        await self._allow(call, "recv", request.topic)
        return self._admin.shown(request.topic)

    async def put_settings(self, request: m.PutSettings, call: Call = NOBODY) -> m.SettingsShown:
        """Give a topic settings; they hold from now on."""
        await self._allow(call, "admin", request.topic)
        if request.settings.dead_letter_to is not None:
            await self._allow(call, "admin", request.settings.dead_letter_to)
        return await self._admin.put(request.topic, request.settings, _meta(call))

    async def delete_settings(self, request: m.DeleteSettings, call: Call = NOBODY) -> m.SettingsGone:
        """Let a topic have the service's settings again."""
        await self._allow(call, "admin", request.topic)
        return await self._admin.delete(request.topic, _meta(call))

    async def delete_topic(self, request: m.DeleteTopic, call: Call = NOBODY) -> m.TopicDeleted:
        """Remove a topic whole."""
        await self._allow(call, "admin", request.topic)
        return m.TopicDeleted(await self._admin.delete_topic(request.topic, _meta(call)))

    async def dlq(self, request: m.GetDlq, call: Call = NOBODY) -> m.DlqPage:
        """Page through dead letters; the cursor is the seq of the last one shown."""
        await self._allow(call, "admin", request.topic)
        self._state.check_ready()
        page = self._dead_page(request.topic, request.reason, _cursor(request.cursor), request.limit + 1)
        if page is None:
            return m.DlqPage(())
        found = await self._reader.ask(self._reads.dead, replace(page, payloads=False))
        shown = found[: request.limit]
        more = str(shown[-1][0].seq) if len(found) > len(shown) else None
        return m.DlqPage(tuple(self._dead_letter(row, dead) for row, dead in shown), more)

    def _dead_page(self, topic: str | None, reason: str | None, after: int, limit: int) -> DeadPage | None:
        if topic is None:
            return DeadPage(None, reason, after, limit)
        known = self._ledger.topics.get(topic)
        return None if known is None or not known.id else DeadPage(known.id, reason, after, limit)

    def _dead_letter(self, row: MessageRow, dead: DeadRow) -> m.DeadLetter:
        topic = self._ledger.by_id.get(row.topic)
        return m.DeadLetter(
            msg_id=row.msg_id,
            topic="" if topic is None else topic.name,
            reason=dead.reason,
            attempts=dead.attempts,
            ts=row.ts,
            dead_at=dead.at,
            payload_hash=row.address,
            history=tuple(m.Attempt(at, *split_cause(cause)) for at, cause in dead.history),
            key=row.key,
        )

    async def reprocess(self, request: m.Reprocess, call: Call = NOBODY) -> m.Reprocessing:
        """Send dead letters back through the `reproc` channel; the answer says how many are planned."""
        await self._allow(call, "admin", request.topic)
        self._state.check_ready()
        if request.to is not None:
            await self._allow(call, "admin", request.to)
        page = self._chosen(request)
        planned = 0 if page is None else await self._reader.ask(self._reads.dead_count, page)
        if page is not None and planned and not request.dry_run:
            self._reprocessor.submit(Redrive(page, request.to, _meta(call).corr_id))
        return m.Reprocessing(planned)

    def _chosen(self, request: m.Reprocess | m.DeleteDead) -> DeadPage | None:
        """Return which dead letters are meant; a msg_id that was never one of ours means none."""
        page = self._dead_page(request.topic, request.reason, 0, request.limit)
        if page is None or request.msg_id is None:
            return page
        name = self._ledger.read_name(request.msg_id)
        return None if name is None else replace(page, after=name.seq - 1, up_to=name.seq)

    async def delete_dead(self, request: m.DeleteDead, call: Call = NOBODY) -> m.DeadDeleted:
        """Remove dead letters, slice by slice; each is written into the audit before it goes."""
        await self._allow(call, "admin", request.topic)
        self._state.check_ready()
        page = self._chosen(request)
        if page is None:
            return m.DeadDeleted(0)
        if request.dry_run:
            return m.DeadDeleted(await self._reader.ask(self._reads.dead_count, page))
        return m.DeadDeleted(await self._dead_remover.remove(page))


class PromptApi:
    """Implements `penstock.contracts.mailbox_prompt.PromptMailbox`: begins calls that wait for nothing but the answer.

    It does what the mailbox's own routes do on their hot path: what is known to be allowed goes to the dispatcher in
    the same step, and the dispatcher's promise is the answer.
    """

    def __init__(self, parts: MailboxParts, authority: MailboxAuthority) -> None:
        """Stand beside the contract's own implementation."""
        self._ledger = parts.state.ledger
        self._dispatcher = parts.dispatcher
        self._authority = authority

    def _allows(self, call: Call, op: str, topic: str, cost_bytes: int = 0) -> bool:
        """Tell whether a call is known to be allowed; a refusal is raised. What is traced takes the way with spans."""
        return TRACER.sink is None and _is_known(self._authority.allow(call, op, topic, cost_bytes))

    def send(self, request: m.Send, call: Call, deadline: Deadline) -> Promise | None:
        """Store a message."""
        if request.origin is not None or not self._allows(call, "send", request.topic, size_of(request)):
            return None
        self._note_sender(request.topic, call)
        return self._dispatcher.send(request, RequestMeta(call.corr_id, deadline))

    def send_batch(self, sends: Sequence[m.Send], call: Call, deadline: Deadline) -> Promise | None:
        """Store messages of one topic, each on its own."""
        check_batch(tuple(sends))
        topic, cost = sends[0].topic, sum(map(size_of, sends))
        if any(send.topic != topic or send.origin is not None for send in sends):
            return None
        if not self._allows(call, "send", topic, cost):
            return None
        self._note_sender(topic, call)
        return self._dispatcher.send_batch(sends, RequestMeta(call.corr_id, deadline), {})

    def _note_sender(self, name: str, call: Call) -> None:
        topic = self._ledger.topics.get(name)
        if topic is not None and topic.tenant is None:
            topic.tenant = self._authority.tenant_of(call.capability)

    def recv(self, request: m.Recv, call: Call, deadline: Deadline) -> Promise | None:
        """Lease messages."""
        if not self._allows(call, "recv", request.topic):
            return None
        meta = RequestMeta(call.corr_id, deadline)
        if request.wait_ms:
            meta.rejudge = self._authority.watch(call, "recv", request.topic)
        return self._dispatcher.recv(request, meta).promise

    def settle(self, op: str, request: m.Settlement, call: Call, deadline: Deadline) -> Promise | None:
        """Settle one message; None for one that is not in RAM."""
        name = self._ledger.read_name(request.msg_id)
        (topic,) = self._dispatcher.topics_of((name,))
        if topic is None or not self._allows(call, op, topic):
            return None
        return self._dispatcher.settle(request, name, RequestMeta(call.corr_id, deadline))

    def settle_batch(self, op: str, requests: Sequence[m.Settlement], call: Call, deadline: Deadline) -> Promise | None:
        """Settle messages of one topic, each on its own; None if one of them is not in RAM."""
        check_batch(tuple(requests))
        names = [self._ledger.read_name(request.msg_id) for request in requests]
        (topic, *others) = set(self._dispatcher.topics_of(names))
        if others or topic is None or not self._allows(call, op, topic):
            return None
        return self._dispatcher.settle_batch(requests, names, RequestMeta(call.corr_id, deadline), {})


def settlements_of(batch: SettlementBatch) -> tuple[m.Settlement, ...]:
    """Return the items of a batch, whatever it does."""
    match batch:
        case m.AckBatch():
            return batch.acks
        case m.NackBatch():
            return batch.nacks
        case _:
            return batch.extends


async def _refused(
    judge: Judge, op: str, topics: Sequence[str | None], costs: Mapping[str | None, int] = _NO_COSTS
) -> dict[int, PenstockError]:
    """Check the capability once for each topic of a batch; returns the places that are refused, with the reason."""
    verdicts: dict[str | None, PenstockError | None] = {}
    for topic in dict.fromkeys(topics):
        try:
            waiting = judge(op, topic, costs.get(topic, 0))
            if waiting is not None:
                await waiting
            verdicts[topic] = None
        except PenstockError as error:
            verdicts[topic] = error
    if not any(verdicts.values()):
        return {}
    refusals = ((place, verdicts[topic]) for place, topic in enumerate(topics))
    return {place: refusal for place, refusal in refusals if refusal is not None}


def _is_known(waiting: Awaitable[None] | None) -> bool:
    """Tell whether a verdict is there; one that would have to be waited for is not begun."""
    if isinstance(waiting, Coroutine):
        waiting.close()
    return waiting is None


def _oldest(reads: EngineReads, topics: list[int]) -> list[int | None]:
    return [reads.oldest(topic) for topic in topics]


def _exists(topic: Topic) -> bool:
    """Tell whether a topic is shown: it holds something, or it was set up."""
    return bool(topic.living or topic.dead or topic.configured)


def _meta(call: Call) -> RequestMeta:
    return RequestMeta(call.corr_id, current_deadline())


def _cursor(text: str | None) -> int:
    if text is None:
        return 0
    if not (text.isascii() and text.isdecimal() and len(text) <= 15):
        raise Malformed("This is not a cursor of ours.", reason="bad_cursor")
    return int(text)


def _visible_at(state: MessageState | None, shown: str) -> int | None:
    return state.until if state is not None and shown in ("inflight", "delayed") else None
