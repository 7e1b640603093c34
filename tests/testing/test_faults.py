"""Fault points are silent outside a simulation, and repeat themselves inside one."""

from __future__ import annotations

import pytest

from penstock.testing.faults import Faults, simulation, strikes


def draws(seed: int, name: str, noise: int = 0) -> list[bool]:
    with simulation(Faults(seed, {name: 0.5})):
        result = []
        for _ in range(40):
            for _ in range(noise):
                strikes("another point")
            result.append(strikes(name))
        return result


def test_a_point_never_strikes_outside_a_simulation() -> None:
    assert not any(strikes("disk.slow") for _ in range(1000))
    with simulation(Faults(1, {"disk.slow": 1.0})):
        assert strikes("disk.slow")
    assert not strikes("disk.slow")


def test_the_seed_fixes_every_draw_of_a_point_whatever_the_others_do() -> None:
    assert draws(1, "a") == draws(1, "a", noise=3)
    assert draws(1, "a") != draws(2, "a")
    assert draws(1, "a") != draws(1, "b")


def test_a_share_of_the_points_is_enabled_for_a_whole_run() -> None:
    with simulation(Faults(3)) as faults:
        for name in map(str, range(200)):
            for _ in range(100):
                strikes(name)

    assert 25 <= len(faults.struck) <= 75
    assert all(count < 50 for count in faults.struck.values())
    assert faults.asked["0"] == 100


def test_a_failure_inside_carries_its_seed() -> None:
    def fail() -> None:
        with simulation(Faults(4711, {"x": 1.0})):
            assert strikes("x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        fail()

    assert caught.value.__notes__ == ["seed of the faults: 4711; struck: {'x': 1}"]


def test_simulations_nest_and_the_outer_one_comes_back() -> None:
    with simulation(Faults(1, {"x": 1.0})):
        with simulation(Faults(1, {"x": 0.0})):
            assert not strikes("x")
        assert strikes("x")
