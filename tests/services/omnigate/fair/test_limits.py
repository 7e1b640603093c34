"""The adaptive limit before an upstream with a few slots: it finds them, keeps them busy, and lets no queue grow."""

from __future__ import annotations

import random
from collections import deque
from heapq import heappop

import pytest

from penstock.services.omnigate.fair.limits import LEAST, START_SHARE, AdaptiveLimit, FixedLimit, RouteLatency
from tests.services.omnigate.fair.world import Sender, Unit, World, make_queue


class Upstream(World):
    """Serves so many at once, each for `service_s`; the others queue there, where the gateway cannot see them."""

    def __init__(self, limit: AdaptiveLimit | FixedLimit, *, slots: int = 32, service_s: float = 0.02) -> None:
        super().__init__(make_queue(limit.value), service_s=service_s)
        self.limit = limit
        self.slots = slots
        self.latency = RouteLatency()
        self.limits: list[int] = []
        self.latencies: list[tuple[float, str, float]] = []
        self._busy = 0
        self._line: deque[tuple[Unit, float]] = deque()
        self._dice = random.Random(1)

    def _start(self, unit: Unit) -> None:
        self._line.append((unit, self.now))
        self._serve()

    def _serve(self) -> None:
        while self._line and self._busy < self.slots:
            unit, started = self._line.popleft()
            self._busy += 1
            took = self.service_s * self._dice.uniform(0.8, 1.2)
            self.at(self.now + took, lambda unit=unit, started=started: self._served(unit, started))

    def _served(self, unit: Unit, started: float) -> None:
        self._busy -= 1
        self.limit.sample(self.latency, self.now - started, started)
        self.limit.adjust(self.now, running=self.queue.running, waiting=self.queue.waiting)
        self.queue.limit = self.limit.value
        self.limits.append(self.limit.value)
        self.latencies.append((self.now, unit.sender.name, self.now - unit.arrived_at))
        self._finish(unit)
        self._serve()

    def run(self, until: float) -> None:
        """Run without the work-conserving check: a limit that has just grown is used at the next event."""
        self.at(self.now, self._tick)
        while self._events and self._events[0][0] <= until:
            self.now, _, call = heappop(self._events)
            call()
            self.dispatch()
        self.now = until

    def p99_s(self, name: str, since: float) -> float:
        """Return the 99th percentile of a sender's latency."""
        found = sorted(took for at, who, took in self.latencies if who == name and at >= since)
        return found[int(len(found) * 0.99)]


class Stalling(Upstream):
    """An upstream that stops altogether for a tenth of a second, again and again: a collector, a disk, a neighbour."""

    def __init__(self, limit: AdaptiveLimit, seed: int) -> None:
        super().__init__(limit)
        self._dice = random.Random(seed)
        self._stalled_until = 0.0
        self.at(0.3, self._stall)

    def _stall(self) -> None:
        self._stalled_until = self.now + self._dice.uniform(0.03, 0.17)
        self.at(self.now + self._dice.uniform(0.1, 0.5), self._stall)

    def _served(self, unit: Unit, started: float) -> None:
        if self.now < self._stalled_until:
            self.at(self._stalled_until, lambda: super(Stalling, self)._served(unit, started))
        else:
            super()._served(unit, started)


def highest_usual_limit(seed: int) -> int:
    """Return what the limit was below nine times in ten, after ten seconds of overload and stalls."""
    world = Stalling(AdaptiveLimit(512, 0.0), seed)
    world.add(Sender("flood", "anon", every_s=1 / 3200))
    world.add(Sender("light", "authed", every_s=1 / 80))
    world.run(20.0)
    late = sorted(world.limits[len(world.limits) // 2 :])
    return late[len(late) * 9 // 10]


def test_stalls_that_no_limit_helps_against_do_not_raise_it_for_good() -> None:
    found = sorted(highest_usual_limit(seed) for seed in range(5))

    # One unlucky row of stalls may cost a while; most do not.
    assert found[2] <= 96


@pytest.mark.parametrize(("slots", "service_s"), [(1000, 0.001), (1000, 0.02), (1, 0.000_05)])
def test_a_hundred_quiet_connections_of_one_address_are_never_refused(slots: int, service_s: float) -> None:
    world = Upstream(AdaptiveLimit(512, 0.0), slots=slots, service_s=service_s)
    crowd = world.add(Sender("crowd", "anon", at_once=100))
    world.run(2.0)

    assert dict(crowd.refused) == {}


def test_under_ten_times_the_load_light_classes_wait_hardly_longer_than_alone() -> None:
    alone = Upstream(AdaptiveLimit(512, 0.0))
    alone.add(Sender("light", "authed", every_s=1 / 80))
    alone.run(6.0)
    world = Upstream(AdaptiveLimit(512, 0.0))
    flood = world.add(Sender("flood", "anon", every_s=1 / 16000))
    light = [world.add(Sender(name, name, every_s=1 / 80)) for name in ("authed", "internal")]
    world.run(6.0)

    assert [dict(sender.refused) for sender in light] == [{}, {}]
    for sender in light:
        assert world.p99_s(sender.name, 1.0) <= 2 * alone.p99_s("light", 1.0)
    assert (flood.served + sum(sender.served for sender in light)) / 6 >= 0.9 * 1600


def test_throughput_holds_from_capacity_to_ten_times_of_it() -> None:
    for factor in (1, 3, 10):
        world = Upstream(AdaptiveLimit(512, 0.0))
        flood = world.add(Sender("flood", "anon", every_s=1 / (1600 * factor)))
        world.run(3.0)

        assert flood.served / 3 >= 0.9 * 1600, (factor, flood.served / 3, world.limits[-1])


def test_an_overload_is_never_learned_as_the_normal_latency() -> None:
    world = Upstream(AdaptiveLimit(512, 0.0))
    world.add(Sender("flood", "anon", every_s=1 / 2400))
    world.run(30.0)

    assert max(world.limits[-20_000:]) <= 64
    assert world.latency.long_s < 0.025


def test_a_downstream_that_becomes_slower_does_not_close_the_gate() -> None:
    world = Upstream(AdaptiveLimit(512, 0.0), slots=1000)
    sender = world.add(Sender("steady", "authed", every_s=1 / 400))
    world.run(5.0)
    before = sender.served
    world.service_s = 0.2
    world.run(15.0)
    after = sender.served - before

    # 80 at once are needed now, where 8 were enough.
    assert after / 10 >= 0.85 * 400
    assert world.limit.value >= 80


def test_the_limit_is_not_moved_by_what_is_not_felt() -> None:
    limit = AdaptiveLimit(512, 0.0)
    world = Upstream(limit)
    world.add(Sender("light", "authed", every_s=1 / 10))
    world.run(30.0)

    assert limit.value == 512 // START_SHARE


def test_it_stays_between_its_bounds_whatever_it_is_told() -> None:
    dice = random.Random(7)
    limit, latency, now = AdaptiveLimit(64, 0.0), RouteLatency(), 0.0
    for _ in range(20_000):
        now += 0.01
        limit.sample(latency, dice.choice([0.0, 0.0001, 0.01, 10.0]), now - dice.choice([0.0, 0.01, 1.0]))
        limit.adjust(now, running=dice.randrange(64), waiting=dice.randrange(3))
        assert LEAST <= limit.value <= 64


def test_a_fixed_limit_stays() -> None:
    limit, latency = FixedLimit(7), RouteLatency()
    limit.sample(latency, 1.0, 0.0)
    limit.adjust(100.0, running=7, waiting=7)

    assert limit.value == 7


def test_requests_that_started_before_a_window_say_nothing_about_it() -> None:
    limit, latency = AdaptiveLimit(512, 100.0), RouteLatency()
    limit.sample(latency, 50.0, 50.0)

    assert latency.count == 0
