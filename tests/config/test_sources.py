"""Where values come from: a file, the environment and --set say the same things in their own spelling."""

from __future__ import annotations

import pytest

from penstock.config.faults import Layer
from penstock.config.kinds import SCALARS
from penstock.config.settings import show_value
from penstock.config.sources import Sources, env_name
from tests.config.samples import SCHEMA, faults_of, make


def test_two_underscores_stand_for_a_dot():
    settings = make(env={"PENSTOCK_GATE__HOOK__SECRET": "s", "PENSTOCK_GATE__MAX_SIZE": "1MiB"})

    assert settings.secret("gate.hook.secret").reveal() == "s"
    assert settings.size("gate.max_size") == 1 << 20


PLAIN = [name for name, key in SCHEMA.keys.items() if key.kind in SCALARS and not key.optional]


@pytest.mark.parametrize("key", PLAIN)
def test_every_key_can_be_set_by_its_environment_variable_as_it_is_shown(key):
    default = make()
    settings = make(env={env_name(key): show_value(SCHEMA.keys[key], default[key])})

    assert settings[key] == default[key]
    assert str(settings.provenance(key)) == env_name(key)


def test_variables_of_others_are_left_alone():
    assert not faults_of(
        env={"PENSTOCK_TOKEN": "psp1_x", "PATH": "/bin", "PENSTOCKX__Y": "1", "penstock_gate__open": "x"}
    )


def test_a_key_written_with_one_underscore_is_told_not_ignored():
    [fault] = faults_of(env={"PENSTOCK_GATE_MAX_SIZE": "1"})

    assert "PENSTOCK_GATE__MAX_SIZE" in fault.rule


def test_a_set_without_an_equals_sign_is_a_fault():
    [fault] = faults_of(sets=("gate.conns",))

    assert fault.rule == "must be key=value"


def test_the_last_of_two_sets_wins():
    assert make(sets=("gate.conns=3", "gate.conns=4"))["gate.conns"] == 4


def test_a_value_may_hold_an_equals_sign():
    assert make(sets=("gate.title=a=b",))["gate.title"] == "a=b"


def test_a_text_list_is_split_at_commas_and_may_be_written_as_toml():
    assert make(sets=("gate.names=a, b,",)).texts("gate.names") == ("a", "b")
    assert make(sets=('gate.names=["a,b", "c"]',)).texts("gate.names") == ("a,b", "c")
    assert make(env={"PENSTOCK_GATE__UIDS": "0,1000"}).integers("gate.uids") == (0, 1000)
    assert make(sets=("gate.names=",)).texts("gate.names") == ()


def test_a_map_in_one_text_replaces_and_one_entry_patches():
    assert dict(make(sets=("gate.weights=a=2,b=3",)).mapping("gate.weights")) == {"a": 2, "b": 3}
    assert dict(make(sets=("gate.weights={a = 2}",)).mapping("gate.weights")) == {"a": 2}
    assert dict(make(sets=("gate.weights.low=5",)).mapping("gate.weights")) == {"low": 5, "high": 10}
    assert dict(make(env={"PENSTOCK_GATE__WEIGHTS__LOW": "7"}).mapping("gate.weights")) == {"low": 7, "high": 10}
    assert dict(make("[gate.weights]\nonly = 4", sets=("gate.weights.low=5",)).mapping("gate.weights")) == {
        "only": 4,
        "low": 5,
    }


def test_a_text_may_not_go_on_after_its_value():
    [fault] = faults_of(sets=("gate.names=[]\nother = 1",))

    assert fault.rule == "must be written as in TOML"


def test_sources_do_not_show_what_they_hold():
    sources = Sources(environ={"HOOK": "alpha"}, sets=("gate.hook.secret=beta",))

    assert "alpha" not in repr(sources)
    assert "beta" not in repr(sources)


def test_a_quoted_name_with_a_dot_does_not_pass_for_a_dotted_name():
    [fault] = faults_of('"gate.conns" = 3')

    assert "no such key" in fault.rule


def test_a_value_where_a_table_belongs_is_told_so():
    [fault] = faults_of("gate = 3")

    assert fault.rule == "is a table of keys, not a value"
    assert str(fault.origin) == "gate.toml:1"


@pytest.mark.parametrize(
    ("toml", "where"),
    [("[gate]\nconns = \n", "gate.toml:2"), ("[gate]\nx = 1\nx = 2", "gate.toml:3"), ("[gate", "gate.toml")],
)
def test_a_broken_document_is_one_fault_with_its_line(toml, where):
    [fault] = faults_of(toml)

    assert str(fault.origin).startswith(where)
    assert "is not TOML" in fault.rule


def test_a_broken_document_does_not_hide_the_faults_of_other_sources_nor_make_up_new_ones():
    faults = faults_of("[gate", sets=("gate.conns=0", "gate.size=1MiB"))

    assert [fault.key for fault in faults] == ["", "gate.conns"]


def test_deep_nesting_and_endless_numbers_are_faults_not_crashes():
    assert faults_of("x = " + "[" * 50_000 + "]" * 50_000)
    assert faults_of("[gate]\nconns = " + "9" * 5_000)


def test_each_layer_names_its_place():
    settings = make("[gate]\nconns = 3", env={"PENSTOCK_GATE__OPEN": "on"}, sets=("gate.mode=fast",))

    assert str(settings.provenance("gate.conns")) == "gate.toml:2"
    assert str(settings.provenance("gate.open")) == "PENSTOCK_GATE__OPEN"
    assert str(settings.provenance("gate.mode")) == "--set"
    assert settings.provenance("gate.title").layer is Layer.DEFAULT
