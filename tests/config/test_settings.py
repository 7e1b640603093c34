"""The effective settings: immutable, typed, explained, and silent about secrets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.config import Sources, load, node_schema
from penstock.config.faults import ConfigFaults, Fault, Layer, ValueOrigin
from penstock.config.kinds import HostPort
from penstock.config.settings import diff
from penstock.services.interop.config import TABLE as INTEROP
from tests.config.samples import SCHEMA, make


def test_each_accessor_gives_the_type_its_name_promises():
    settings = make(
        "[gate]\ndir = '/srv'\nuids = [5]\n[[gate.routes]]\nprefix = '/a'",
        sets=("gate.hook.secret=s", "gate.hook.keys=k"),
    )

    assert settings.integer("gate.conns") == 50
    assert settings.number("gate.ratio") == 0.5
    assert settings.flag("gate.open") is False
    assert settings.text("gate.mode") == "fair"
    assert settings.seconds("http.wait") == 5.0
    assert settings.size("gate.size") == 65_536
    assert settings.address("gate.addr") == HostPort("127.0.0.1", 80)
    assert settings.address_or_none("gate.spare_addr") is None
    assert settings.path("gate.dir") == Path("/srv")
    assert settings.integers("gate.uids") == (5,)
    assert settings.mapping("gate.weights")["high"] == 10
    assert settings.tables("gate.routes")[0]["prefix"] == "/a"
    assert settings.secret("gate.hook.secret").reveal() == "s"
    assert [secret.reveal() for secret in settings.secrets("gate.hook.keys")] == ["k"]
    assert make().secrets("gate.hook.keys") == ()


@pytest.mark.parametrize(
    ("accessor", "key"), [("integer", "gate.open"), ("text", "gate.conns"), ("flag", "gate.conns")]
)
def test_reading_a_key_as_another_type_is_a_bug_not_a_guess(accessor, key):
    with pytest.raises(TypeError, match=key):
        getattr(make(), accessor)(key)


def test_an_unknown_key_is_a_bug():
    with pytest.raises(KeyError):
        make()["gate.nope"]


def test_settings_cannot_be_changed():
    settings = make()

    with pytest.raises(TypeError):
        settings["gate.conns"] = 1
    with pytest.raises(TypeError):
        settings["gate.weights"]["low"] = 2


def test_the_digest_changes_with_a_value_and_not_with_a_place_or_a_secret():
    plain = make(sets=("gate.hook.secret=a",)).digest

    assert plain == make(sets=("gate.hook.secret=b",)).digest
    assert plain == make("[gate]\nconns = 50", sets=("gate.hook.secret=a",)).digest
    assert plain != make(sets=("gate.hook.secret=a", "gate.conns=51")).digest


def test_the_difference_names_what_changed_and_hides_secrets():
    old, new = make(sets=("gate.hook.secret=alpha",)), make(sets=("gate.hook.secret=beta", "http.wait=7s"))

    assert [str(change) for change in diff(old, new)] == [
        "http.wait: 5s -> 7s",
        "gate.hook.secret: (redacted) -> (redacted)",
    ]
    assert diff(old, old) == ()


def test_show_lists_every_key_with_value_and_origin_and_no_secret():
    rows = {row.key: row for row in make("[http]\nconns = 9", sets=("gate.hook.secret=alpha",)).show()}

    assert list(rows) == list(SCHEMA.keys)
    assert (rows["http.conns"].value, rows["http.conns"].origin, rows["http.conns"].default) == (9, "gate.toml:2", 100)
    assert (rows["gate.size"].value, rows["gate.size"].origin) == ("64KiB", "default")
    assert rows["gate.per_peer"].value == 2
    assert "alpha" not in json.dumps([row.value for row in rows.values()])


def test_show_defaults_tells_what_nothing_set_would_mean():
    rows = {row.key: row for row in make("[http]\nconns = 9").show(defaults=True)}

    assert rows["http.conns"].value == 100
    assert rows["gate.per_peer"].value == 12
    assert {row.origin for row in rows.values()} == {"default"}


def test_a_shown_secret_inside_a_list_of_tables_is_hidden_too():
    settings = make("[[gate.routes]]\nprefix = '/a'\nsigning = 'alpha'")

    assert "alpha" not in repr(settings.show())
    assert "alpha" not in f"{settings!r} {settings['gate.routes']}"


def test_show_tells_what_was_changed_and_what_follows_from_it():
    rows = {row.key: row for row in make("[http]\nconns = 9\nwait = '5s'", sets=("gate.hook.secret=alpha",)).show()}

    assert [key for key, row in rows.items() if row.changed] == [
        "http.conns",
        "gate.conns",
        "gate.per_peer",
        "gate.hook.secret",
    ]
    assert (rows["http.wait"].source, rows["http.wait"].changed) == ("file", False)
    assert (rows["gate.conns"].origin, rows["gate.conns"].follows) == ("gate.toml:2 (http.conns)", "http.conns")
    assert (rows["gate.per_peer"].origin, rows["gate.per_peer"].source) == ("computed from gate.conns", "default")
    assert rows["gate.per_peer"].follows == "gate.conns"
    assert rows["gate.hook.secret"].source == "set"


@pytest.mark.parametrize("field", ["title", "names"])
def test_the_password_of_a_url_is_not_shown_and_its_fault_does_not_tell_it(field):
    url = "https://ada:alpha@queue.example/x?y=1"
    shown = {row.key: row for row in make(sets=(f"gate.{field}={url}",)).show()}[f"gate.{field}"].text()

    assert "https://ada:(redacted)@queue.example/x?y=1" in shown
    with pytest.raises(ConfigFaults) as raised:
        make(sets=(f"gate.conns={url}", f"gate.nothing={url}"))
    assert "ada:(redacted)@queue.example" in str(raised.value)
    assert "alpha" not in f"{raised.value} {raised.value.facts}"


def test_a_rule_that_quotes_a_url_does_not_tell_its_password():
    fault = Fault("gate.routes", "", ValueOrigin(Layer.SET, "--set"), "the upstream http://ada:alpha@host is no base")

    assert "alpha" not in f"{fault} {fault.plain()}"


def test_a_setting_that_holds_no_secret_is_shown_as_empty_and_not_as_one():
    settings = load(node_schema(INTEROP), Sources())
    row = next(row for row in settings.show() if row.key == "interop.issuer_token")

    assert (row.value, row.default, row.changed) == ([], [], False)
