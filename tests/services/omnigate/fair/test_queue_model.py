"""The fair queue against a plain model: any order of events, and nothing is lost, doubled or overtaken."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.services.omnigate.fair.entry import EntryState, QueueEntry
from penstock.services.omnigate.fair.queue import ArrivalOutcome, FairMeasures, FairQueue

CLASSES = ("anon", "authed", "internal", "verify")
WEIGHTS = {"anon": 1, "authed": 5, "internal": 10, "verify": 1}
OPS = (
    "arrive", "arrive", "arrive", "next", "verify", "end", "park", "unpark", "pay", "rejoin", "tick", "limit", "wait",
)  # fmt: skip


class Model:
    """Lists instead of rounds: who is where, and in which order they came."""

    def __init__(self) -> None:
        self.entries: list[QueueEntry] = []
        self.keys: dict[QueueEntry, tuple[str, int]] = {}

    def at(self, *states: EntryState) -> list[QueueEntry]:
        return [entry for entry in self.entries if entry.state in states]

    def count(self, class_name: str, *states: EntryState) -> int:
        return sum(self.keys[entry][0] == class_name for entry in self.at(*states))

    def line_of(self, key: tuple[str, int]) -> list[QueueEntry]:
        return [entry for entry in self.entries if self.keys[entry] == key and entry.linked]


def check(queue: FairQueue, model: Model) -> None:
    """Compare every count with what the model finds by counting."""
    shared = [name for name in CLASSES if name != "verify"]
    assert queue.running == sum(model.count(name, EntryState.RUNNING) for name in shared)
    assert queue.waiting == sum(model.count(name, EntryState.WAITING, EntryState.RETURNING) for name in shared)
    assert queue.parked == len(model.at(EntryState.PARKED, EntryState.RETURNING))
    for name, class_ in queue.classes.items():
        assert class_.waiting == model.count(name, EntryState.WAITING) <= class_.capacity
        assert class_.running == model.count(name, EntryState.RUNNING)
        lines = {
            model.keys[entry]
            for entry in model.at(EntryState.WAITING, EntryState.RETURNING)
            if model.keys[entry][0] == name
        }
        assert class_.rounds.waiting == len(lines)
        assert class_.deficit >= -64 * class_.quantum
        for tenant in class_.tenants.values():
            key = tenant.key
            assert tenant.entries.nodes() == _in_line(model, key)
            assert tenant.live == len(
                [e for e in model.entries if model.keys[e] == key and e.state is not EntryState.OVER]
            )
            assert tenant.deficit >= -64 * tenant.quantum


def _in_line(model: Model, key: tuple[str, object]) -> list[QueueEntry]:
    """Return a tenant's line: whoever came back from parking stands where it came back, so only the set is known."""
    line = [entry for entry in model.entries if model.keys[entry] == key and entry.linked]
    return sorted(line, key=lambda entry: entry.due)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(OPS), st.integers(0, 99), st.integers(1, 1 << 22)),
        max_size=80,
    )
)
def test_any_order_of_events_keeps_every_count_and_every_line(script: list[tuple[str, int, int]]) -> None:
    measures = FairMeasures(weights=WEIGHTS, capacity=64, max_parked=6, own_slots={"verify": 2}, tenants_max=8)
    queue, model, now = FairQueue(measures, 3), Model(), 0.0
    order = 0.0
    for op, number, cost in script:
        now += 0.01
        order += 1
        if op == "arrive":
            entry = QueueEntry()
            entry.cost, entry.due = cost, 1e6 + order
            name, key = CLASSES[number % 4], number // 4 % 5
            outcome = queue.arrive(entry, queue.classes[name], key, now)
            if outcome in {ArrivalOutcome.RUNS, ArrivalOutcome.WAITS}:
                model.entries.append(entry)
                model.keys[entry] = (name, key)
            else:
                assert entry.state is EntryState.NEW
                assert outcome is ArrivalOutcome.FULL
        elif op == "next":
            could = queue.waiting > 0 and queue.running < queue.limit
            taken = queue.next()
            assert (taken is not None) is could, "somebody waits while a slot is free, or a slot came from nowhere"
        elif op == "verify":
            verify = queue.classes["verify"]
            could = verify.waiting > 0 and verify.running < 2
            assert (queue.next_of(verify) is not None) is could
        elif op == "tick":
            queue.tick(now)
        elif op == "wait":
            now += cost / 1000
        elif op == "limit":
            queue.limit = 1 + number % 5
        else:
            _touch(queue, model, (op, number, cost), order, now)
        check(queue, model)


def _touch(queue: FairQueue, model: Model, step: tuple[str, int, int], order: float, now: float) -> None:
    """Do something to an entry that is here."""
    op, number, cost = step
    wanted = {"park": (EntryState.RUNNING,), "unpark": (EntryState.PARKED,), "rejoin": (EntryState.RUNNING,)}.get(
        op, tuple(EntryState)
    )
    found = [entry for entry in model.at(*wanted) if op == "end" or entry.class_.name != "verify"]
    if not found:
        return
    entry = found[number % len(found)]
    if op == "park":
        queue.park(entry)
    elif op == "unpark":
        entry.due = 1e6 + order
        queue.unpark(entry)
    elif op == "rejoin":
        entry.due = 1e6 + order
        queue.rejoin(entry)
    elif op == "pay":
        charged, goes_on = entry.charged, entry.state in {EntryState.RUNNING, EntryState.PARKED}
        queue.pay(entry, cost, now)
        assert entry.charged == (max(charged, cost) if goes_on else charged)
    else:
        queue.end(entry, cost)
        assert entry.state is EntryState.OVER
