"""Precedence, inheritance, computed defaults, rules between keys, and every fault in one go."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.config.build import Picked
from penstock.config.faults import DEFAULT, ConfigFaults
from penstock.config.kinds import REDACTED
from penstock.config.sources import env_name
from tests.config.samples import SCHEMA, faults_of, make

VALUES = st.integers(1, 500)
MAYBE = st.none() | VALUES


def effective(key, layers, *, order=("set", "env", "file")):
    """Say what the precedence law demands; a wrong order is the planted bug."""
    return next((layers[name] for name in order if layers[name] is not None), SCHEMA.keys[key].default)


def built(key, layers):
    """Build settings with the key given in some of the layers."""
    table, leaf = key.split(".")
    toml = "" if layers["file"] is None else f"[{table}]\n{leaf} = {layers['file']}"
    env = {} if layers["env"] is None else {env_name(key): str(layers["env"])}
    sets = () if layers["set"] is None else (f"{key}={layers['set']}",)
    return make(toml, env=env, sets=sets)[key]


LAYERS = st.fixed_dictionaries({"file": MAYBE, "env": MAYBE, "set": MAYBE})


@given(LAYERS)
def test_set_wins_over_environment_over_file_over_default(layers):
    assert built("gate.conns", layers) == effective("gate.conns", layers)


def test_the_precedence_law_notices_a_wrong_order():
    cases = [{"file": 1, "env": 2, "set": 3}, {"file": 1, "env": 2, "set": None}]

    for wrong in (("env", "set", "file"), ("set", "file", "env"), ("file", "env", "set")):
        assert any(built("gate.conns", case) != effective("gate.conns", case, order=wrong) for case in cases)


@pytest.mark.parametrize(
    ("toml", "sets", "conns"),
    [
        ("", (), 50),
        ("[http]\nconns = 200", (), 200),
        ("[http]\nconns = 200\n[gate]\nconns = 7", (), 7),
        ("[gate]\nconns = 7", ("http.conns=200",), 7),
    ],
)
def test_the_same_key_in_a_services_table_wins_over_http_wherever_both_came_from(toml, sets, conns):
    assert make(toml, sets=sets)["gate.conns"] == conns


def test_an_inherited_value_says_so_and_obeys_the_inheriting_keys_range():
    settings = make("[http]\nconns = 200")
    [fault] = faults_of("[http]\nconns = 900")

    assert str(settings.provenance("gate.conns")) == "gate.toml:2 (http.conns)"
    assert fault.key == "gate.conns"
    assert "1..500" in fault.rule


def test_a_computed_default_follows_what_it_is_computed_from_until_it_is_given():
    assert make(sets=("gate.conns=40",))["gate.per_peer"] == 10
    assert make(sets=("gate.conns=40", "gate.per_peer=3"))["gate.per_peer"] == 3
    assert make()["gate.share"] == 1 << 20


def test_zero_turns_a_quota_off_below_its_range():
    assert make(sets=("gate.per_peer=0",))["gate.per_peer"] == 0
    assert faults_of(sets=("gate.per_peer=-1",))


def test_a_rule_between_keys_blames_the_key_with_its_value_and_place():
    [fault] = faults_of("[gate]\nsize = '1MiB'")

    assert str(fault) == "gate.toml:2: gate.size = 1MiB: must be at most gate.max_size"


def test_all_faults_come_in_one_go_each_with_key_value_place_and_rule():
    faults = faults_of(
        "[gate]\nconns = 0\nopen = 'x'\nsize = '1MiB'\nnope = 1\n[[gate.routes]]\nweight = 99\ntimeut = '1s'",
        env={"PENSTOCK_GATE__RATIO": "2"},
        sets=("gate.mode=best",),
    )

    assert [(fault.key, fault.value, str(fault.origin)) for fault in faults] == [
        ("gate.conns", "0", "gate.toml:2"),
        ("gate.open", "x", "gate.toml:3"),
        ("gate.nope", "1", "gate.toml:5"),
        ("gate.routes[0].weight", "99", "gate.toml:7"),
        ("gate.routes[0].timeut", "1s", "gate.toml:8"),
        ("gate.routes[0].prefix", "", "gate.toml:6"),
        ("gate.ratio", "2", "PENSTOCK_GATE__RATIO"),
        ("gate.mode", "best", "--set"),
        ("gate.size", "1MiB", "gate.toml:4"),
    ]
    assert "did you mean timeout?" in faults[4].rule
    assert all(fault.rule for fault in faults)


def test_a_rule_about_a_wrong_key_is_not_judged():
    assert [fault.key for fault in faults_of(sets=("gate.max_size=1", "gate.max_size=x", "gate.size=1MiB"))] == [
        "gate.max_size"
    ]


def test_a_wrong_value_in_a_weaker_layer_is_refused_though_a_stronger_one_is_right():
    assert faults_of("[gate]\nconns = 0", sets=("gate.conns=5",))


def test_tables_in_a_list_get_their_defaults_and_cannot_be_changed():
    [route] = make("[[gate.routes]]\nprefix = '/a'").tables("gate.routes")

    assert route["timeout"] == 2.0
    with pytest.raises(TypeError):
        route["timeout"] = 1


def test_secrets_come_by_value_by_variable_or_by_file():
    env = {"HOOK": "from-env", "OTHER": "second"}

    assert make(sets=("gate.hook.secret=plain",)).secret("gate.hook.secret").reveal() == "plain"
    assert make("[gate.hook]\nsecret_env = 'HOOK'", env=env).secret("gate.hook.secret").reveal() == "from-env"
    assert make("[gate.hook]\nsecret_file = '/run/hook'").secret("gate.hook.secret").reveal() == "from-a-file"
    keys = make("[gate.hook]\nkeys_env = ['HOOK', 'OTHER']", env=env).secrets("gate.hook.keys")
    assert [key.reveal() for key in keys] == ["from-env", "second"]
    assert make("[gate.hook]\nsecret_env = ''").secret("gate.hook.secret") is None


def test_a_stronger_layer_may_move_a_secret_but_one_layer_may_not_give_it_twice():
    moved = make("[gate.hook]\nsecret = 'a'", sets=("gate.hook.secret_file=/run/hook",))

    assert moved.secret("gate.hook.secret").reveal() == "from-a-file"
    assert faults_of("[gate.hook]\nsecret = 'a'\nsecret_file = '/run/hook'")


def test_a_row_may_not_give_its_secret_twice_either():
    [fault] = faults_of("[[gate.routes]]\nprefix = '/a'\nsigning = 'a'\nsigning_file = '/run/hook'")

    assert fault.key == "gate.routes[0].signing_file"


LEAK = "hunter2-" + "x" * 8


@pytest.mark.parametrize(
    "toml",
    [
        f"[gate.hook]\nsecrt = '{LEAK}'",
        f"[gate.hook]\nsecret = ['{LEAK}']",
        f"[gate.hook]\nsecret_env = '{LEAK}'",
        f"[gate.hook]\nsecret_file = '{LEAK}'",
        f"[gate.hook]\nkeys = ['{LEAK}', 1]",
        f"[gat.hook]\nsecret = '{LEAK}'",
        f"[gate]\nhook = '{LEAK}'",
        f"[[gate.routes]]\nsigning = ['{LEAK}']",
        f"[[gate.routes]]\ntoken = '{LEAK}'",
        f"[gate]\nroutes = [['{LEAK}']]",
        f"[gate]\napi_token = '{LEAK}'",
    ],
)
def test_no_fault_shows_what_may_be_a_secret(toml):
    faults = faults_of(toml)

    assert faults
    assert LEAK not in str(ConfigFaults(faults))


def test_the_place_of_a_secret_is_shown_when_it_is_one():
    [fault] = faults_of("[gate.hook]\nsecret_env = 'NOT_THERE'")

    assert fault.value == "NOT_THERE"
    assert faults_of("[gate.hook]\nsecret = 5")[0].value == REDACTED


def test_a_pinned_value_wins_and_what_is_computed_from_it_follows():
    settings = make(sets=("gate.slots=32",), pins={"gate.slots": Picked(16, DEFAULT)})

    assert settings["gate.slots"] == 16
    assert settings["gate.per_slot"] == 4


def test_faults_are_a_problem_an_http_client_can_read():
    with pytest.raises(ConfigFaults) as caught:
        make(sets=("gate.conns=0",))

    assert caught.value.code == "malformed"
    assert caught.value.facts["faults"] == [
        {"key": "gate.conns", "value": "0", "origin": "--set", "rule": "must be in the range 1..500"}
    ]


NAMES = st.sampled_from([*SCHEMA.keys, "gate", "http", "", "gate.nope", "gate.hook.secret_env", "gate.weights.x"])
JUNK = st.text(max_size=20) | st.sampled_from(["{", "[1", "[{}]", "{a=1}", "a=b", "1e999", "-0", "[[", "'", "\ud800"])
TOML_JUNK = st.sampled_from(
    [
        "1",
        "-1",
        "nan",
        "[]",
        "{}",
        "[{}]",
        "[[1]]",
        "''",
        "'x'",
        "true",
        "1979-05-27",
        "07:32:00",
        "[1, 'a']",
        "1e3",
        "{a=[]}",
    ]
)
STATEMENTS = st.builds("{} = {}".format, NAMES.filter(bool), TOML_JUNK)


@given(
    st.text(max_size=60) | st.lists(STATEMENTS, max_size=5).map("\n".join),
    st.dictionaries(NAMES.map(env_name) | st.text(max_size=9).map("PENSTOCK_".__add__), JUNK, max_size=4),
    st.lists(st.builds("{}={}".format, NAMES, JUNK) | JUNK, max_size=4).map(tuple),
)
@example("", {}, ("gate.routes=[{}]",))
@example("gate.weights = {'' = 1}", {}, ())
def test_junk_gives_settings_or_faults_and_nothing_else(toml, env, sets):
    faults = faults_of(toml, env=env, sets=sets)

    assert all(fault.rule and str(fault).isprintable() for fault in faults)
    assert faults or len(make(toml, env=env, sets=sets).show()) == len(SCHEMA.keys)
