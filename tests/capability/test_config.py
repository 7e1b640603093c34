"""The `[capability]` table is read into the verifier's options, and out of range is refused."""

from __future__ import annotations

import pytest

from penstock.capability.config import TABLE, verifier_options
from penstock.capability.verifier import VerifierOptions
from penstock.config import ConfigFaults, Sources, load, node_schema
from penstock.services.passport.config import TABLE as PASSPORT

SCHEMA = node_schema(PASSPORT, TABLE)


def test_defaults_of_the_table_are_the_verifiers_own():
    assert verifier_options(load(SCHEMA, Sources())) == VerifierOptions()


def test_settings_reach_the_verifier():
    sets = (
        "capability.stale_grace=60s",
        "capability.cache_tokens=100",
        "node.amnesia=true",
        "passport.pq.mode=require",
    )
    options = verifier_options(load(SCHEMA, Sources(sets=sets)))

    assert (options.stale_grace_s, options.tokens_max, options.amnesia, options.pq_mode) == (60.0, 100, True, "require")


def test_a_cache_of_nothing_is_refused():
    with pytest.raises(ConfigFaults):
        load(SCHEMA, Sources(sets=("capability.cache_tokens=1",)))
