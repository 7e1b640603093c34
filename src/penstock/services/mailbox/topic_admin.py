"""What an operator does to a whole topic: its settings, its purge, its end.

Settings hold from the step that takes them on: RAM is changed at once and the row goes into the open batch, so every
later send or lease goes by them and is committed with or after them. The answer waits for the commit. When that commit
fails, RAM is rebuilt from the disk, as it is for everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.contracts import mailbox as m
from penstock.kernel.errors import Malformed, NotFound, OverLimit
from penstock.net.promise import answer_of
from penstock.services.mailbox.engines.engine import DeadPage
from penstock.services.mailbox.jobs import PurgeJob, RequestMeta, SettingsJob
from penstock.services.mailbox.rows import Loaded, MessageRow, TopicRow
from penstock.services.mailbox.state import settings_size

if TYPE_CHECKING:
    from penstock.services.mailbox.shards.topics import Topic
    from penstock.services.mailbox.state import MailboxParts

SETTINGS_BYTES_MAX: Final = 64 << 20
_SLICE: Final = 1000


class TopicAdmin:
    """Changes whole topics. Whoever calls it was allowed to."""

    def __init__(self, parts: MailboxParts) -> None:
        self._state = parts.state
        self._ledger = parts.state.ledger
        self._guard = parts.state.redrive_guard
        self._reader = parts.reader
        self._reads = parts.reader.reads
        self._writer = parts.writer
        self._dispatcher = parts.dispatcher

    # --- settings

    def shown(self, name: str) -> m.SettingsShown:
        """Show the settings of a topic; NotFound when it has none."""
        self._state.check_ready()
        topic = self._ledger.topics.get(name)
        if topic is None or not topic.configured:
            raise NotFound("This topic has no settings of its own.")
        return m.SettingsShown(topic.name, topic.settings, topic.generation)

    async def put(self, name: str, settings: m.TopicSettings, meta: RequestMeta) -> m.SettingsShown:
        """Give a topic settings; returns when they are durable."""
        self._dispatcher.check_intake()
        self._check(name, settings)
        topic = self._numbered(name)
        self._state.set_up(topic, settings)
        shown = self.shown(name)
        await self._write(topic, settings, meta)
        return shown

    def _check(self, name: str, settings: m.TopicSettings) -> None:
        """Refuse settings that this mailbox cannot keep."""
        if settings.visibility_ms is not None:
            self._state.options.rules.check_visibility(settings.visibility_ms)
        if settings.dead_letter_to is not None:
            self._check_target(name, settings.dead_letter_to)
        self._state.claims.check(settings)
        known, state = self._ledger.topics.get(name), self._state
        before = 0 if known is None else state.configured.get(known, 0)
        if not before and len(state.configured) >= state.options.topic_settings_max:
            raise OverLimit("Too many topics have settings.", limit="topic_settings")
        if state.settings_bytes - before + settings_size(settings) > SETTINGS_BYTES_MAX:
            raise OverLimit("The settings of all topics together are too large.", limit="topic_settings_bytes")

    def _check_target(self, name: str, target: str) -> None:
        """Refuse dead letters that would come back to where they died."""
        seen: str | None = target
        while seen is not None:
            if seen == name:
                raise Malformed("dead_letter_to leads back to this topic.", reason="dead_letter_cycle")
            topic = self._ledger.topics.get(seen)
            seen = None if topic is None else topic.settings.dead_letter_to

    def _numbered(self, name: str) -> Topic:
        """Return the topic; one that nobody has sent to yet gets its number here."""
        topic = self._ledger.topic(name)
        if not topic.id:
            self._writer.batch.topics.append(TopicRow(self._ledger.number(topic), name, topic.form, topic.generation))
        return topic

    async def _write(self, topic: Topic, settings: m.TopicSettings | None, meta: RequestMeta) -> None:
        job, batch = SettingsJob(settings, meta), self._writer.batch
        batch.settings[topic.id] = settings
        batch.settled.append(job)
        # What was held back may go out now, and what waited may be deliverable in another order.
        self._dispatcher.notify(topic)
        self._writer.wake()
        await answer_of(job.promise)

    async def delete(self, name: str, meta: RequestMeta) -> m.SettingsGone:
        """Let a topic have the service's settings again; harmless when it has them."""
        self._dispatcher.check_intake()
        topic = self._ledger.topics.get(name)
        if topic is not None and topic.configured:
            self._state.set_up(topic, None)
            await self._write(topic, None, meta)
        return m.SettingsGone()

    # --- the end of its messages

    async def purge(self, name: str) -> int:
        """Remove the messages that wait or are leased now, slice by slice, and forget their idem_keys."""
        self._state.check_ready()
        topic = self._ledger.topics.get(name)
        purged, after, up_to = 0, 0, self._ledger.seq
        if topic is not None and topic.id:
            # Before the first message goes: one that is sent again meanwhile is a new one, behind `up_to`.
            self._raise_generation(topic)
        while topic is not None and topic.id:
            await self._writer.flushed()
            with self._state.tracked():
                found = await self._reader.ask(self._reads.living, topic.id, after, up_to, _SLICE)
                if not found:
                    break
                some = await self._purge_slice(found)
            purged += some
            if some == len(found):
                # Otherwise the end of some leases was on its way to the disk: the next slice begins before those
                # messages again.
                after = found[-1][0].seq
        return purged

    def _raise_generation(self, topic: Topic) -> None:
        if self._state.raise_generation(topic):
            self._writer.batch.topics.append(TopicRow(topic.id, topic.name, topic.form, topic.generation))

    async def _purge_slice(self, found: list[Loaded]) -> int:
        groups: dict[int, list[Loaded]] = {}
        for each in found:
            groups.setdefault(self._dispatcher.worker_of(each[0].slot).index, []).append(each)
        jobs = [PurgeJob(group) for group in groups.values()]
        for index, job in zip(groups, jobs, strict=True):
            self._dispatcher.workers[index].work.try_send(job)
        return sum([await answer_of(job.promise) for job in jobs])

    async def delete_topic(self, name: str, meta: RequestMeta) -> int:
        """Remove a topic whole: its settings first, so that nothing goes by them any more, then what it holds."""
        await self.delete(name, meta)
        removed = await self.purge(name)
        return removed + await self._drop_dead(name)

    async def _drop_dead(self, name: str) -> int:
        """Remove the dead letters of a topic; each is written into the audit before it goes."""
        topic = self._ledger.topics.get(name)
        dropped = 0
        while topic is not None and topic.id and topic.dead:
            mark = self._guard.mark()
            found = await self._reader.ask(self._reads.dead, DeadPage(topic.id, None, 0, _SLICE, payloads=False))
            taken = self._guard.take([row.seq for row, _ in found], mark)
            if not found:
                break
            try:
                rows = [row for row, _ in found if row.seq in taken]
                await self._note(rows, name)
                self._writer.batch.dead_gone += rows
                await self._writer.flushed()
            finally:
                self._guard.ended(taken)
            dropped += len(taken)
        return dropped

    async def _note(self, rows: list[MessageRow], name: str) -> None:
        at = self._state.now().wall
        said = {"at_ms": at, "action": "dlq.dropped", "why": "deleted", "topic": name}
        await self._reader.note([{**said, "msg_id": row.msg_id} for row in rows])
