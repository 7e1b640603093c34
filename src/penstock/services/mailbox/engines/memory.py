"""Everything in RAM: for `--amnesia`, and the plainest engine there is. It forgets with the process."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from penstock.services.mailbox.batch import Batch
from penstock.services.mailbox.claims import claim_hash
from penstock.services.mailbox.engines.engine import (
    DeadPage,
    EngineContents,
    EngineReads,
    StoredTopic,
    TopicPage,
)
from penstock.services.mailbox.rows import (
    KIND_DELAYED,
    KIND_LEASED,
    KIND_READY,
    DeadRow,
    IdemClaim,
    Loaded,
    MessageRow,
    MessageState,
    StoredTrace,
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

    def __init__(self, key: bytes) -> None:
        # Nothing blocks and nothing is on another thread: it reads itself.
        self.reads: EngineReads = self
        self._key = key
        self._boot = 0
        self._seq = 0
        self._topics: dict[int, str] = {}
        self._rows: dict[int, MessageRow] = {}
        self._states: dict[int, MessageState] = {}
        self._dead: dict[int, tuple[MessageRow, DeadRow]] = {}
        self._acked: dict[int, tuple[int, int]] = {}
        self._claims: dict[int, IdemClaim] = {}
        self._plain: dict[int, _Line] = {}
        self._keyed: dict[int, dict[str, _Line]] = {}
        self._expiring: dict[int, int] = {}

    def open(self, delays_max: int) -> EngineContents:
        """Raise the boot counter and return what is there."""
        self._boot += 1
        states = [(self._rows[seq], state) for seq, state in self._states.items() if state.kind != KIND_READY]
        return EngineContents(
            boot=self._boot,
            key=self._key,
            seq=self._seq,
            topic_number=max(self._topics, default=0),
            topics=[self._topic(number, name) for number, name in self._topics.items()],
            states=states,
            claims_next=max(self._claims, default=-1) + 1,
            claims=array("Q", chain.from_iterable((c.n, claim_hash(c.name), c.at) for c in self._claims.values())),
        )

    def _topic(self, number: int, name: str) -> StoredTopic:
        living = [row for row in self._rows.values() if row.topic == number]
        dead = [row for row, _ in self._dead.values() if row.topic == number]
        delayed = [row for row in living if self._kind(row.seq) == KIND_DELAYED]
        plain = sum(row.key is None for row in living)
        dead_bytes = sum(len(row.payload) for row in dead)
        total = sum(len(row.payload) for row in living) + dead_bytes
        return StoredTopic(number, name, plain, len(living) - plain, total, len(delayed), len(dead), dead_bytes)

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

    def commit(self, batch: Batch) -> None:
        """Apply a batch."""
        self._seq = max(self._seq, batch.rows[-1].seq if batch.rows else 0)
        self._topics.update(batch.topics)
        for number in batch.topics_gone:
            self._topics.pop(number, None)
        for row in batch.rows:
            self._add(row)
        for claim in batch.claims:
            self._claims[claim.n] = claim
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

    def _add(self, row: MessageRow) -> None:
        self._rows[row.seq] = row
        self._line(row).add(row.seq)
        if row.expires is not None:
            self._expiring[row.seq] = row.expires

    def _line(self, row: MessageRow) -> _Line:
        if row.key is None:
            return self._plain.setdefault(row.topic, _Line())
        return self._keyed.setdefault(row.topic, {}).setdefault(row.key, _Line())

    def _remove(self, seq: int) -> MessageRow | None:
        row = self._rows.pop(seq, None)
        if row is not None:
            self._expiring.pop(seq, None)
            empty = self._line(row).removed(self._rows)
            if empty and row.key is not None:
                del self._keyed[row.topic][row.key]
        return row

    def trim(self, acked_before: int, acked_max: int, claims_floor: int) -> bool:
        """Forget the oldest receipts and claims that are old or too many."""
        for seq in list(self._acked)[:2000]:
            if self._acked[seq][1] < acked_before or len(self._acked) > acked_max:
                del self._acked[seq]
        for number in list(self._claims)[:1000]:
            if number < claims_floor:
                del self._claims[number]
        return False

    # --- windows

    def _loaded(self, seq: int) -> Loaded:
        return self._rows[seq], self._states.get(seq)

    def window(self, topic: int, after: int, limit: int, bytes_max: int) -> list[Loaded]:
        """Read un-keyed messages that wait to be delivered, in order."""
        found: list[Loaded] = []
        total = 0
        for seq in self._plain.get(topic, _Line()).after(after):
            if seq in self._rows and self._kind(seq) == KIND_READY:
                total += len(self._rows[seq].payload)
                if len(found) >= limit or (found and total > bytes_max):
                    break
                found.append(self._loaded(seq))
        return found

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
        delayed = [state for state in self._states.values() if state.kind == KIND_DELAYED]
        delayed.sort(key=lambda state: state.until)
        over = [state for state in delayed[:limit] if state.until <= until]
        later = delayed[len(over)].until if len(delayed) > len(over) else None
        return [self._loaded(state.seq) for state in over], later

    def expired(self, now: int, limit: int) -> list[Loaded]:
        """Read messages whose time to live is over."""
        over = [seq for seq, at in self._expiring.items() if at <= now and self._kind(seq) != KIND_LEASED]
        return [self._loaded(seq) for seq in over[:limit]]

    def waiting_since(self, before: int, limit: int) -> list[Loaded]:
        """Read the oldest messages, as far as they were sent before then and are not leased."""
        old = [seq for seq, row in islice(self._rows.items(), limit) if row.ts < before]
        return [self._loaded(seq) for seq in old if self._kind(seq) != KIND_LEASED]

    # --- single messages

    def rows(self, seqs: Sequence[int]) -> dict[int, MessageRow]:
        """Read whole rows."""
        return {seq: self._rows[seq] for seq in seqs if seq in self._rows}

    def trace(self, seq: int) -> StoredTrace:
        """Say what is known of a message."""
        if seq in self._acked:
            gen = self._acked[seq][0]
            return StoredTrace("purged") if gen < 0 else StoredTrace("acked", gen)
        row = self._rows.get(seq) or (self._dead[seq][0] if seq in self._dead else None)
        return StoredTrace("none") if row is None else StoredTrace("here", 0, row.msg_id)

    def claim(self, n: int) -> IdemClaim | None:
        """Read a claim on an idem_key."""
        return self._claims.get(n)

    # --- looking

    def peek(self, page: TopicPage) -> list[Loaded]:
        """Read messages of one state, oldest first."""
        if page.state == "dlq":
            found = self.dead(DeadPage(page.topic, None, 0, page.limit))
            return [(row, MessageState(dead.seq, 0, 0, dead.attempts, 0)) for row, dead in found]
        seqs = [row.seq for row in self._rows.values() if row.topic == page.topic]
        return [self._loaded(seq) for seq in seqs if self._shown(seq, page.now) == page.state][: page.limit]

    def _shown(self, seq: int, now: int) -> str:
        state = self._states.get(seq)
        if state is None or state.kind == KIND_READY or (state.kind == KIND_DELAYED and state.until <= now):
            return "ready"
        return "inflight" if state.kind == KIND_LEASED else "delayed"

    def oldest(self, topic: int) -> int | None:
        """Say when the oldest living message of a topic was sent."""
        return min((row.ts for row in self._rows.values() if row.topic == topic), default=None)

    def living(self, topic: int, after: int, up_to: int, limit: int) -> list[Loaded]:
        """Read a topic's living messages in a range of seq, leased or not."""
        found = (seq for seq, row in self._rows.items() if row.topic == topic and after < seq <= up_to)
        return [self._loaded(seq) for seq in islice(found, limit)]

    # --- dead letters

    def dead(self, page: DeadPage) -> list[tuple[MessageRow, DeadRow]]:
        """Read dead letters, oldest first."""
        found = (self._dead[seq] for seq in sorted(self._dead) if seq > page.after)
        wanted = [
            (row, dead) for row, dead in found if page.topic in (None, row.topic) and page.reason in (None, dead.reason)
        ]
        return wanted[: page.limit]

    def dead_count(self, page: DeadPage) -> int:
        """Count dead letters, at most `limit`."""
        return len(self.dead(page))

    def dead_old(self, before: int, limit: int) -> list[MessageRow]:
        """Read dead letters that died before then, those that died of age first, then the oldest."""
        old = sorted((dead.reason != "ttl", dead.at, seq) for seq, (_, dead) in self._dead.items() if dead.at < before)
        return [self._dead[seq][0] for _, _, seq in old[:limit]]
