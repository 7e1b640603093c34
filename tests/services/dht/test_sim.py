"""The simulator: the same seed gives the same report, and a small network keeps the promises."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from penstock.services.dht.sim.gates import judge_groups, judge_hostile, judge_recovery, success
from penstock.services.dht.sim.options import SimOptions
from penstock.services.dht.sim.scenario import Scenario

SMALL = SimOptions(nodes=150, lookups=200, keys=40, span_s=600.0, dead_at_s=300.0, churn=0.2)


def test_the_same_seed_gives_the_same_output_under_any_hash_seed() -> None:
    command = [sys.executable, "-m", "penstock", "dht", "sim", "--nodes", "80", "--lookups", "40", "--json"]
    outputs = {
        subprocess.run(command, capture_output=True, check=False, env={**os.environ, "PYTHONHASHSEED": seed}).stdout
        for seed in ("1", "2")
    }

    assert len(outputs) == 1
    assert b'"holds": true' in outputs.pop()


def test_lookups_survive_churn_and_the_death_of_a_fifth() -> None:
    result = Scenario(SMALL).run()

    assert len(result.looked) == SMALL.lookups
    assert result.joins == result.leaves == int(0.2 * 150 * 600 / 3600)
    assert result.killed > 0
    assert success(result.looked) >= 0.99
    assert judge_recovery(result).holds


def test_liars_do_not_win_against_three_paths() -> None:
    still = SimOptions(nodes=150, lookups=150, keys=40, span_s=300.0, dead=0.0, churn=0.0)
    result = Scenario(
        SimOptions(nodes=still.nodes, lookups=150, keys=40, span_s=300.0, dead=0.0, churn=0.0, hostile=0.2, paths=3)
    ).run()

    assert judge_hostile(result).holds


def test_one_network_with_most_nodes_does_not_fill_a_lookup() -> None:
    result = Scenario(
        SimOptions(nodes=300, lookups=60, keys=0, span_s=300.0, dead=0.0, churn=0.0, one_group=0.7, walks_instead=True)
    ).run()

    assert judge_groups(result).holds


@pytest.mark.parametrize("partition", [0.3])
def test_a_partition_heals(partition: float) -> None:
    result = Scenario(
        SimOptions(nodes=120, lookups=240, keys=20, span_s=1800.0, dead=0.0, churn=0.0, partition=partition)
    ).run()
    after = [each for each in result.looked if each.at_s > 1200.0]

    assert success(after) >= 0.99
