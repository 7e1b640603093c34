"""Costs: estimates that follow what was seen, within bounds, and high where nothing is announced."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from penstock.services.omnigate.fair.costs import LEAST_COST, MOST_COST, RouteCost, spent


def test_a_millisecond_of_waiting_costs_a_tenth_of_one_of_work() -> None:
    waited, worked = spent(0, 1.0), spent(0, 0.0, 1.0)

    assert abs(worked / waited - 10) < 0.05
    assert spent(1000, 0.0) == 1000


def test_an_estimate_is_the_announced_body_and_what_its_route_costs_besides() -> None:
    route = RouteCost()
    for _ in range(200):
        route.learn(1000, 1000 + 50_000)

    assert abs(route.expect(2000) - 52_000) < 500


def test_an_unknown_length_is_estimated_high() -> None:
    route, dice = RouteCost(), random.Random(5)
    for _ in range(5000):
        route.learn(-1, 10_000 if dice.random() < 0.8 else 200_000)

    assert route.expect(-1) > 60_000
    assert route.expect(-1) <= 300_000


@given(st.lists(st.tuples(st.integers(-1, 10**8), st.integers(0, 10**9)), max_size=50), st.integers(-1, 10**9))
def test_an_estimate_is_never_below_the_least_or_above_the_most(seen: list[tuple[int, int]], length: int) -> None:
    route = RouteCost()
    for announced, cost in seen:
        route.learn(announced, cost)

    assert LEAST_COST <= route.expect(length) <= MOST_COST
