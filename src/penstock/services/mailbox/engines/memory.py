"""Everything in RAM: for `--amnesia`, and the plainest engine there is. It forgets with the process."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from penstock.contracts.mailbox import State, TopicSettings
from penstock.contracts.mailbox_rules import reason_matches
from penstock.services.mailbox.batch import Batch
from penstock.services.mailbox.claims import CLASS_SHIFT, claim_hash
from penstock.services.mailbox.engines.engine import (
    DeadPage,
    EngineContents,
    EngineReads,
    StoredTopic,
    TopicPage,
    as_loaded,
    state_shown,
)
from penstock.services.mailbox.rows import (
    KIND_DELAYED,
    KIND_LEASED,
    KIND_READY,
    PURGED_GEN,
    DeadRow,
    IdemClaim,
    Loaded,
    MessageRow,
    MessageState,
    StoredTrace,
    TopicRow,
)


class _Line:
    """Seqs in order. A removed one is only skipped; when half of all are removed, the list is made anew."""

    __slots__ = ("_gone", "seqs")

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self._gone = 0

    def add(self, seq: int) -> None:
        self.seqs.append(seq)

    def removed(self, rows: dict[int, MessageRow]) -> bool:
        """Note a removal; tell whether nothing is left."""
        self._gone += 1
        if self._gone * 2 > len(self.seqs):
            self.seqs = [seq for seq in self.seqs if seq in rows]
            self._gone = 0
        return not self.seqs

    def after(self, seq: int) -> Iterator[int]:
        return iter(self.seqs[bisect_right(self.seqs, seq) :])


class MemoryEngine:
    """Dictionaries. An engine that is opened again still holds what it held; it ends with the process."""

    name = "memory"
    durable = False
    full = False
    commit_s = 0.0

    def __init__(self, key: bytes) -> None:
        # Nothing blocks and nothing is on another thread: it reads itself.
        self.reads: EngineReads = self
        self._key = key
        self._boot = 0
        self._seq = 0
        self._topics: dict[int, TopicRow] = {}
        self._settings: dict[int, TopicSettings] = {}
        self._rows: dict[int, MessageRow] = {}
        self._states: dict[int, MessageState] = {}
        self._dead: dict[int, tuple[MessageRow, DeadRow]] = {}
        self._acked: dict[int, tuple[int, int]] = {}
        # By their class, then by their number.
        self._claims: dict[int, dict[int, IdemClaim]] = {}
        # By topic, then by group; None is that of messages without one.
        self._plain: dict[int, dict[str | None, _Line]] = {}
        self._keyed: dict[int, dict[str, _Line]] = {}
        self._expiring: dict[int, int] = {}

    def open(self, delays_max: int) -> EngineContents:
        """Raise the boot counter and return what is there."""
        self._boot += 1
        stored = ((self._rows[seq], state) for seq, state in self._states.items())
        states = [each for each in stored if each[1].kind == KIND_LEASED or _by_time(*each)]
        return EngineContents(
            boot=self._boot,
            key=self._key,
            seq=self._seq,
            topic_number=max(self._topics, default=0),
            topics=[self._topic(row) for row in self._topics.values()],
            states=states,
            claims=array("Q", chain.from_iterable((c.n, claim_hash(c.name), c.at) for c in self._all_claims())),
        )

    def _all_claims(self) -> Iterator[IdemClaim]:
        return chain.from_iterable(claims.values() for claims in self._claims.values())

    def _topic(self, topic: TopicRow) -> StoredTopic:
        number = topic.number
        living = [row for row in self._rows.values() if row.topic == number]
        dead = [row for row, _ in self._dead.values() if row.topic == number]
        delayed = [row for row in living if self._kind(row.seq) == KIND_DELAYED]
        keyed = sum(row.key is not None for row in living)
        grouped = sum(row.key is None and row.group is not None for row in living)
        dead_bytes = sum(row.size for row in dead)
        return StoredTopic(
            id=number,
            name=topic.name,
            plain=len(living) - keyed - grouped,
            keyed=keyed,
            bytes=sum(row.size for row in living) + dead_bytes,
            delayed=len(delayed),
            dead=len(dead),
            dead_bytes=dead_bytes,
            grouped=grouped,
            form=topic.form,
            generation=topic.generation,
            settings=self._settings.get(number),
        )

    def close(self) -> None:
        """Nothing to end."""

    def idle(self) -> None:
        """Nothing to tidy up."""

    def tend(self) -> None:
        """Have no files to look after."""

    def check(self) -> list[str]:
        """Nothing can be damaged."""
        return []

    def rebuild(self) -> bool:
        """Nothing to rebuild."""
        return False

    def _kind(self, seq: int) -> int:
        state = self._states.get(seq)
        return KIND_READY if state is None else state.kind

    # --- commit

    def prepare(self, batch: Batch) -> None:
        """Nothing to prepare."""

    @property
    def checkpoint_due(self) -> bool:
        """There is no log."""
        return False

    @property
    def copy_due(self) -> bool:
        """There is no log."""
        return False

    def copy_log(self) -> None:
        """There is no log."""

    def checkpoint(self) -> None:
        """There is no log."""

    def commit(self, batch: Batch) -> None:
        """Apply a batch."""
        self._seq = max(self._seq, batch.rows[-1].seq if batch.rows else 0)
        self._commit_topics(batch)
        for row in batch.rows:
            self._add(row)
        for claim in batch.claims:
            self._claims.setdefault(claim.n >> CLASS_SHIFT, {})[claim.n] = claim
        for dead in batch.dead:
            found = self._remove(dead.seq)
            if found is not None:
                self._dead[dead.seq] = (found, dead)
        for seq in batch.gone:
            self._remove(seq)
        for seq, state in batch.states.items():
            if state is not None and seq in self._rows:
                self._states[seq] = state
            else:
                self._states.pop(seq, None)
        for seq, gen, at in batch.acked:
            self._acked[seq] = (gen, at)
        for seq in (*(row.seq for row in batch.dead_gone), *batch.redriven.values()):
            self._dead.pop(seq, None)

    def _commit_topics(self, batch: Batch) -> None:
        self._topics.update({topic[0]: TopicRow(*topic) for topic in batch.topics})
        for number in batch.topics_gone:
            self._topics.pop(number, None)
        for number, settings in batch.settings.items():
            self._settings.pop(number, None)
            if settings is not None:
                self._settings[number] = settings

    def _add(self, row: MessageRow) -> None:
        self._rows[row.seq] = row
        self._line(row).add(row.seq)
        if row.expires is not None:
            self._expiring[row.seq] = row.expires

    def _line(self, row: MessageRow) -> _Line:
        if row.key is None:
            return self._plain.setdefault(row.topic, {}).setdefault(row.group, _Line())
        return self._keyed.setdefault(row.topic, {}).setdefault(row.key, _Line())

    def _remove(self, seq: int) -> MessageRow | None:
        row = self._rows.pop(seq, None)
        if row is not None:
            self._expiring.pop(seq, None)
            empty = self._line(row).removed(self._rows)
            if empty and row.key is not None:
                del self._keyed[row.topic][row.key]
            elif empty:
                del self._plain[row.topic][row.group]
        return row

    def trim(self, acked_before: int, acked_max: int, claims_floors: Sequence[int]) -> bool:
        """Forget the oldest receipts and claims that are old or too many."""
        for seq in list(self._acked)[:2000]:
            if self._acked[seq][1] < acked_before or len(self._acked) > acked_max:
                del self._acked[seq]
        for floor in claims_floors:
            claims = self._claims.get(floor >> CLASS_SHIFT, {})
            for number in [number for number in islice(claims, 1000) if number < floor]:
                del claims[number]
        return False

    # --- windows

    def _loaded(self, seq: int) -> Loaded:
        return self._rows[seq], self._states.get(seq)

    def window(self, topic: int, group: str | None, after: int, limit: int, bytes_max: int) -> list[Loaded]:
        """Read un-keyed messages of a group, or of none, that wait to be delivered, in order."""
        found: list[Loaded] = []
        total = 0
        for seq in self._plain.get(topic, {}).get(group, _Line()).after(after):
            if seq in self._rows and self._kind(seq) == KIND_READY:
                total += self._rows[seq].size
                if len(found) >= limit or (found and total > bytes_max):
                    break
                found.append(self._loaded(seq))
        return found

    def group_heads(self, topic: int, after: str, limit: int) -> list[Loaded]:
        """Read the first un-keyed message of each group, in order of the groups."""
        groups = self._plain.get(topic, {})
        names = sorted((g for g in groups if g is not None and g.encode() > after.encode()), key=str.encode)
        firsts = (next((seq for seq in groups[name].seqs if seq in self._rows), None) for name in names)
        return [self._loaded(first) for first in islice((f for f in firsts if f is not None), limit)]

    def next_of_key(self, topic: int, key: str, after: int, limit: int) -> list[Loaded]:
        """Read a key's next messages."""
        line = self._keyed.get(topic, {}).get(key)
        seqs = [] if line is None else [seq for seq in line.after(after) if seq in self._rows]
        return [self._loaded(seq) for seq in seqs[:limit]]

    def key_heads(self, topic: int, after: str, limit: int) -> list[Loaded]:
        """Read the first message of each key, in order of the keys."""
        keys = sorted(key for key in self._keyed.get(topic, {}) if key.encode() > after.encode())
        heads = (self.next_of_key(topic, key, 0, 1) for key in sorted(keys, key=str.encode))
        return [head[0] for head in heads if head][:limit]

    def due(self, until: int, limit: int) -> tuple[list[Loaded], int | None]:
        """Read messages whose delay ends by then, and when the next one's does."""
        delayed = [state for state in self._states.values() if _by_time(self._rows[state.seq], state)]
        delayed.sort(key=lambda state: state.until)
        over = [state for state in delayed[:limit] if state.until <= until]
        later = delayed[len(over)].until if len(delayed) > len(over) else None
        return [self._loaded(state.seq) for state in over], later

    def expired(self, now: int, limit: int) -> list[Loaded]:
        """Read messages whose time to live is over."""
        over = [seq for seq, at in self._expiring.items() if at <= now and self._kind(seq) != KIND_LEASED]
        return [self._loaded(seq) for seq in over[:limit]]

    def waiting_since(self, before: int, limit: int, after: int = 0) -> list[Loaded]:
        """Read the oldest messages behind a seq, as far as they were sent before then and are not leased."""
        behind = ((seq, row) for seq, row in self._rows.items() if seq > after)
        old = [seq for seq, row in islice(behind, limit) if row.ts < before]
        return [self._loaded(seq) for seq in old if self._kind(seq) != KIND_LEASED]

    # --- single messages

    def rows(self, seqs: Sequence[int]) -> dict[int, MessageRow]:
        """Read whole rows."""
        return {seq: self._rows[seq] for seq in seqs if seq in self._rows}

    def one(self, seq: int) -> Loaded | None:
        """Read a living message."""
        return self._loaded(seq) if seq in self._rows else None

    def trace(self, seq: int) -> StoredTrace:
        """Say what is known of a message."""
        if seq in self._acked:
            gen = self._acked[seq][0]
            return StoredTrace("purged") if gen == PURGED_GEN else StoredTrace("acked", gen)
        row = self._rows.get(seq) or (self._dead[seq][0] if seq in self._dead else None)
        return StoredTrace("none") if row is None else StoredTrace("here", 0, row.msg_id)

    def claim(self, n: int) -> IdemClaim | None:
        """Read a claim on an idem_key."""
        return self._claims.get(n >> CLASS_SHIFT, {}).get(n)

    # --- looking

    def peek(self, page: TopicPage) -> tuple[list[Loaded], int | None]:
        """Read messages of one state, oldest first, and say behind which seq the next page begins."""
        # One more than is shown tells whether there is a next page.
        if page.state == "dlq":
            found = list(map(as_loaded, self.dead(DeadPage(page.topic, None, page.after, page.limit + 1))))
        else:
            found = list(islice(self._in_state(page), page.limit + 1))
        shown = found[: page.limit]
        return shown, shown[-1][0].seq if len(found) > len(shown) else None

    def _in_state(self, page: TopicPage) -> Iterator[Loaded]:
        for seq, row in self._rows.items():
            if seq > page.after and row.topic == page.topic:
                state = self._states.get(seq)
                if state_shown(state, page.now) == page.state:
                    yield row, state

    def peek_one(self, topic: int, seq: int, now: int) -> tuple[Loaded, State] | None:
        """Read one message of a topic, living or dead, and its state."""
        if seq in self._rows:
            loaded = self._loaded(seq)
            return (loaded, state_shown(loaded[1], now)) if loaded[0].topic == topic else None
        found = self.dead(DeadPage(topic, None, seq - 1, 1, up_to=seq))
        return (as_loaded(found[0]), "dlq") if found else None

    def oldest(self, topic: int) -> int | None:
        """Say when the oldest living message of a topic was sent."""
        return min((row.ts for row in self._rows.values() if row.topic == topic), default=None)

    def oldest_of_all(self) -> tuple[int, int] | None:
        """Say in which topic the oldest living message of all is, and when it was sent."""
        row = next(iter(self._rows.values()), None)
        return None if row is None else (row.topic, row.ts)

    def living(self, topic: int, after: int, up_to: int, limit: int) -> list[Loaded]:
        """Read a topic's living messages in a range of seq, leased or not."""
        found = (seq for seq, row in self._rows.items() if row.topic == topic and after < seq <= up_to)
        return [self._loaded(seq) for seq in islice(found, limit)]

    # --- dead letters

    def dead(self, page: DeadPage) -> list[tuple[MessageRow, DeadRow]]:
        """Read dead letters, oldest first."""
        found = (self._dead[seq] for seq in sorted(self._dead) if page.after < seq <= page.up_to)
        wanted = [
            (row, dead)
            for row, dead in found
            if page.topic in (None, row.topic) and reason_matches(page.reason, dead.reason)
        ]
        return wanted[: page.limit]

    def dead_count(self, page: DeadPage) -> int:
        """Count dead letters, at most `limit`."""
        return len(self.dead(page))

    def dead_groups(self, limit: int) -> list[tuple[int, str, int, int, int]]:
        """Count dead letters by topic and reason, the largest groups first."""
        groups: dict[tuple[int, str], list[int]] = {}
        for row, dead in self._dead.values():
            groups.setdefault((row.topic, dead.reason), []).append(dead.at)
        counted = [(topic, reason, len(ats), min(ats), max(ats)) for (topic, reason), ats in groups.items()]
        return sorted(counted, key=lambda group: -group[2])[:limit]

    def dead_old(self, before: int, limit: int) -> list[MessageRow]:
        """Read dead letters that died before then, those that died of age first, then the oldest."""
        old = sorted((dead.reason != "ttl", dead.at, seq) for seq, (_, dead) in self._dead.items() if dead.at < before)
        return [self._dead[seq][0] for _, _, seq in old[:limit]]


def _by_time(row: MessageRow, state: MessageState) -> bool:
    """Tell whether a message waits for its time alone; a keyed one that was never tried waits for its key as well."""
    return state.kind == KIND_DELAYED and (row.key is None or state.attempts > 0)
