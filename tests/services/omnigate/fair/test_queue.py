"""Fair sharing: weights between classes, equal shares inside one, places that a flood cannot take."""

from __future__ import annotations

from penstock.services.omnigate.fair.entry import EntryState, shares
from penstock.services.omnigate.fair.queue import ArrivalOutcome
from tests.services.omnigate.fair.world import KIB, WEIGHTS, Sender, Unit, World, make_queue


def fill(queue, limit: int, name: str = "filler", class_name: str = "authed") -> list[Unit]:
    """Take every slot."""
    units = [Unit(Sender(name), 4 * KIB, 4 * KIB, 1e9) for _ in range(limit)]
    for unit in units:
        assert queue.arrive(unit, queue.classes[class_name], name, 0.0) is ArrivalOutcome.RUNS
    return units


def test_three_flooding_classes_complete_by_their_weights() -> None:
    world = World(make_queue())
    senders = [world.add(Sender(name, name, every_s=1 / 3200)) for name in WEIGHTS]
    world.run(4.0)

    total = sum(sender.served for sender in senders)
    for sender in senders:
        assert abs(sender.served / total - WEIGHTS[sender.name] / 16) < 0.01, (sender.name, sender.served, total)


def test_a_flooding_class_refuses_no_light_one_and_hardly_delays_it() -> None:
    world = World(make_queue())
    flood = world.add(Sender("flood", "anon", every_s=1 / 16000))
    light = [world.add(Sender(name, name, every_s=1 / 80)) for name in ("authed", "internal")]
    world.run(4.0)

    assert all(not sender.refused for sender in light)
    assert flood.refused["full"] > 50_000
    for sender in light:
        waits = sorted(sender.waits_s)
        assert waits[int(len(waits) * 0.99)] <= 0.02


def test_tenants_of_a_class_share_equally_however_many_requests_they_send() -> None:
    world = World(make_queue())
    heavy = world.add(Sender("heavy", every_s=1 / 16000))
    others = [world.add(Sender(f"t{n}", every_s=1 / 1000)) for n in range(3)]
    world.run(4.0)

    assert abs(heavy.served / others[0].served - 1) < 0.02
    assert abs(others[1].served / others[0].served - 1) < 0.02


def test_a_flooding_tenant_never_costs_a_light_one_its_place() -> None:
    world = World(make_queue(limit=8))
    flood = world.add(Sender("flood", every_s=1 / 4000))
    light = [world.add(Sender(f"t{n}", every_s=1 / 20)) for n in range(4)]
    world.run(10.0)

    assert flood.refused["full"]
    assert [dict(sender.refused) for sender in light] == [{}, {}, {}, {}]


def test_who_declares_less_than_it_costs_gets_no_more_than_its_share() -> None:
    world = World(make_queue(limit=1, quantum_bytes=4 * KIB), by_cost=True)
    gamer = world.add(Sender("gamer", estimate=KIB, real=80 * KIB, at_once=1))
    honest = world.add(Sender("honest", estimate=4 * KIB, real=4 * KIB, at_once=16))
    world.run(400.0)

    assert gamer.served_cost / (gamer.served_cost + honest.served_cost) <= 0.51


def test_a_class_that_declares_less_than_it_costs_gets_no_more_than_its_weight() -> None:
    world = World(make_queue(limit=1, quantum_bytes=4 * KIB), by_cost=True)
    gamers = [world.add(Sender(f"g{n}", "anon", estimate=KIB, real=40 * KIB, at_once=1)) for n in range(4)]
    honest = world.add(Sender("honest", "authed", at_once=16))
    world.run(400.0)

    cost = sum(gamer.served_cost for gamer in gamers)
    assert cost / (cost + honest.served_cost) <= 1 / 6 + 0.01


def test_a_request_larger_than_a_turn_leaves_a_debt_even_when_nobody_waited() -> None:
    queue = make_queue(limit=2, quantum_bytes=4 * KIB)
    world = World(queue)
    world.send(Sender("t", estimate=40 * KIB))

    assert queue.classes["authed"].tenants["t"].deficit == -36 * KIB
    assert queue.classes["authed"].deficit == -20 * KIB


def test_debt_survives_an_empty_queue_and_is_forgotten_ten_seconds_after_the_last_request() -> None:
    queue = make_queue(limit=1, quantum_bytes=4 * KIB)
    world = World(queue)
    unit = world.send(Sender("t", real=100 * KIB))
    queue.end(unit, unit.real)
    tenant = queue.classes["authed"].tenants["t"]

    assert tenant.deficit == -96 * KIB
    world.now = 9.9
    queue.tick(world.now)
    assert queue.classes["authed"].tenants["t"] is tenant
    world.now = 10.0
    queue.tick(world.now)
    assert "t" not in queue.classes["authed"].tenants


def test_a_settlement_from_before_a_forgiven_debt_is_dropped() -> None:
    queue = make_queue(limit=8, quantum_bytes=4 * KIB)
    world = World(queue)
    old = world.send(Sender("t", real=400 * KIB))
    indebted = world.send(Sender("t", real=100 * KIB))
    queue.end(indebted, indebted.real)
    world.now = 20.0
    world.send(Sender("t"))
    tenant = queue.classes["authed"].tenants["t"]
    forgiven = tenant.deficit
    queue.end(old, old.real)

    assert forgiven == 0
    assert tenant.deficit == 0


def test_a_debt_is_bounded_by_sixty_four_quanta() -> None:
    queue = make_queue(limit=8, quantum_bytes=4 * KIB)
    world = World(queue)
    for _ in range(5):
        unit = world.send(Sender("t", real=10**9))
        queue.end(unit, unit.real)

    assert queue.classes["authed"].tenants["t"].deficit >= -64 * 4 * KIB


def test_capacities_are_shares_by_weight_that_add_up_and_leave_sixteen_to_the_least() -> None:
    assert shares({**WEIGHTS, "verify": 1}, 512) == {"anon": 30, "authed": 150, "internal": 302, "verify": 30}
    assert shares({"a": 1, "b": 1000}, 512) == {"a": 16, "b": 496}
    assert shares({"a": 1, "b": 1, "c": 1}, 10) == {"a": 4, "b": 3, "c": 3}
    for total in (64, 100, 511, 512):
        cut = shares({"a": 1, "b": 7, "c": 500}, total)
        assert sum(cut.values()) == total
        assert min(cut.values()) >= 16


def test_a_full_class_refuses_the_new_and_keeps_what_waits() -> None:
    queue = make_queue(limit=1)
    fill(queue, 1)
    anon = queue.classes["anon"]
    kept = [Unit(Sender(f"t{n}"), KIB, KIB, 1e9) for n in range(anon.capacity)]
    outcomes = [queue.arrive(unit, anon, unit.sender.name, 0.0) for unit in kept]
    late = Unit(Sender("late"), KIB, KIB, 1e9)

    assert set(outcomes) == {ArrivalOutcome.WAITS}
    assert queue.arrive(late, anon, "late", 0.0) is ArrivalOutcome.FULL
    assert late.state is EntryState.NEW
    assert all(unit.state is EntryState.WAITING for unit in kept)
    assert anon.dropped == 1


def test_one_tenant_may_take_half_of_what_is_there_and_no_more() -> None:
    queue = make_queue(limit=1)
    fill(queue, 1)
    class_ = queue.classes["authed"]
    units = [Unit(Sender("greedy"), KIB, KIB, 1e9) for _ in range(class_.capacity)]
    waiting = [queue.arrive(unit, class_, "greedy", 0.0) is ArrivalOutcome.WAITS for unit in units]

    assert sum(waiting) == class_.capacity // 2
    assert queue.arrive(Unit(Sender("light"), KIB, KIB, 1e9), class_, "light", 0.0) is ArrivalOutcome.WAITS


def test_whoever_leaves_the_queue_frees_its_place_at_once_wherever_it_stands() -> None:
    queue = make_queue(limit=1)
    (runner,) = fill(queue, 1)
    class_ = queue.classes["authed"]
    units = [Unit(Sender("t"), KIB, KIB, 1e9) for _ in range(5)]
    for unit in units:
        queue.arrive(unit, class_, "t", 0.0)
    queue.end(units[2])
    queue.end(units[0])
    queue.end(runner)

    assert class_.waiting == queue.waiting == 3
    order = []
    while (entry := queue.next()) is not None:
        order.append(entry)
        queue.end(entry)
    assert order == [units[1], units[3], units[4]]
    assert queue.waiting == queue.running == class_.waiting == class_.running == 0


def test_a_request_that_cannot_be_served_in_time_is_refused_on_arrival_and_one_that_waits_is_named() -> None:
    world = World(make_queue(limit=1), service_s=0.1)
    world.add(Sender("flood", every_s=0.02, deadline_s=1e9))
    world.run(3.0)
    queue = world.queue
    class_ = queue.classes["authed"]
    hasty = Unit(Sender("hasty"), KIB, KIB, world.now + 0.05)
    patient = Unit(Sender("patient"), KIB, KIB, world.now + 60.0)

    assert 8 < queue.pace.per_s < 12
    assert queue.arrive(hasty, class_, "hasty", world.now) is ArrivalOutcome.HOPELESS
    assert queue.arrive(patient, class_, "patient", world.now) is ArrivalOutcome.WAITS
    assert list(queue.hopeless(world.now)) == []
    patient.due = world.now + 0.01
    assert list(queue.hopeless(world.now)) == [patient]


def test_nobody_is_called_hopeless_while_the_pace_is_unknown() -> None:
    queue = make_queue(limit=1)
    fill(queue, 1)
    unit = Unit(Sender("t"), KIB, KIB, 1e-9)

    assert queue.arrive(unit, queue.classes["authed"], "t", 0.0) is ArrivalOutcome.WAITS
    assert list(queue.hopeless(0.0)) == []


def test_parked_entries_hold_no_slot_and_come_back_by_the_queue() -> None:
    queue = make_queue(limit=1)
    (poll,) = fill(queue, 1, "poller")
    assert queue.park(poll)
    (other,) = fill(queue, 1, "other")
    assert not queue.unpark(poll)
    assert poll.state is EntryState.RETURNING
    assert queue.next() is None
    queue.end(other)

    assert queue.next() is poll
    assert (queue.parked, queue.running, poll.state) == (0, 1, EntryState.RUNNING)


def test_a_tenant_may_park_a_quarter_and_everybody_together_the_whole() -> None:
    queue = make_queue(limit=100, max_parked=8)
    greedy = [queue.park(unit) for unit in fill(queue, 4, "greedy")]
    for name in ("a", "b", "c"):
        for unit in fill(queue, 2, name):
            assert queue.park(unit)
    (last,) = fill(queue, 1, "last")

    assert greedy == [True, True, False, False]
    assert not queue.park(last)
    assert last.state is EntryState.RUNNING
    assert queue.parked == 8


def test_a_returning_entry_finds_a_place_in_a_full_class() -> None:
    queue = make_queue(limit=1)
    (poll,) = fill(queue, 1, "poller", "anon")
    assert queue.park(poll)
    fill(queue, 1, "runner", "anon")
    anon = queue.classes["anon"]
    for number in range(anon.capacity):
        assert queue.arrive(Unit(Sender("x"), KIB, KIB, 1e9), anon, f"x{number}", 0.0) is ArrivalOutcome.WAITS

    assert not queue.unpark(poll)
    assert anon.waiting == anon.capacity
    assert queue.parked == 1


def test_a_class_with_slots_of_its_own_takes_none_from_the_others() -> None:
    weights = {**WEIGHTS, "verify": 1}
    queue = make_queue(limit=1, weights=weights, own_slots={"verify": 2})
    fill(queue, 1)
    verify = queue.classes["verify"]
    units = [Unit(Sender("v"), KIB, KIB, 1e9) for _ in range(3)]
    for unit in units:
        assert queue.arrive(unit, verify, "v", 0.0) is ArrivalOutcome.WAITS

    assert [queue.next_of(verify) for _ in range(3)] == [units[0], units[1], None]
    assert queue.running == 1
    assert queue.next() is None
    queue.end(units[0])
    assert queue.next_of(verify) is units[2]


def test_the_table_of_tenants_is_bounded_and_forgets_the_idle_first() -> None:
    queue = make_queue(limit=10_000, tenants_max=100)
    world = World(queue)
    busy = [world.send(Sender(f"busy{n}")) for n in range(50)]
    for number in range(1000):
        unit = world.send(Sender(f"t{number}"))
        queue.end(unit)

    assert queue.tenants == 100 == len(queue.classes["authed"].tenants)
    assert all(unit.sender.name in queue.classes["authed"].tenants for unit in busy)


def test_one_step_costs_the_same_with_ten_thousand_tenants_whose_heads_are_large() -> None:
    queue = make_queue(limit=1, capacity=40_000, weights={"authed": 1}, tenants_max=20_000)
    (runner,) = fill(queue, 1)
    class_ = queue.classes["authed"]
    for number in range(10_000):
        unit = Unit(Sender("t"), 1 << 20, 1 << 20, 1e9)
        assert queue.arrive(unit, class_, number, 0.0) is ArrivalOutcome.WAITS
    queue.end(runner)
    before = class_.rounds.steps
    seen = 0
    while (entry := queue.next()) is not None:
        queue.end(entry, 1 << 20)
        seen += 1

    assert seen == 10_000
    # Each tenant is filed once and served once; the rounds between them are skipped, not walked.
    assert class_.rounds.steps - before <= 10_000 + 100
