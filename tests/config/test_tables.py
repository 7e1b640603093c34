"""The node's own tables: the promised names, defaults and ranges, and the rules that span tables."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from penstock.config.faults import ConfigFaults
from penstock.config.kinds import HostPort, Kind
from penstock.config.listener import ListenerSettings, listener_settings, service_table
from penstock.config.load import load
from penstock.config.schema import Key
from penstock.config.sources import Sources
from penstock.config.tables import channel_key, node_schema, service_drain

ECHO = service_table("echo", port_offset=10, keys=(service_drain("3s", "5s"), channel_key("work", 512, "jobs.")))
SCHEMA = node_schema(ECHO)


def settings(*sets):
    return load(SCHEMA, Sources(sets=sets))


def faulty_keys(*sets):
    with pytest.raises(ConfigFaults) as caught:
        settings(*sets)
    return [fault.key for fault in caught.value.faults]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("node.profile", "micro"), ("node.port_base", 5300), ("node.amnesia", False), ("node.exit_on_fatal", False),
        ("http.max_conns", 1024), ("http.max_conns_per_ip", 256), ("http.read_timeout", 5.0),
        ("http.write_timeout", 5.0), ("http.idle_timeout", 60.0), ("http.limits.max_body_bytes", 1 << 20),
        ("http.limits.decompress_ratio_cap", 10), ("admin.bind_addr", HostPort("127.0.0.1", 5300)),
        ("admin.open_metrics", True), ("echo.drain_deadline", 3.0), ("echo.metrics_addr", None),
        ("echo.channels.work", 512),
    ],
)  # fmt: skip
def test_defaults_are_those_promised(key, value):
    assert settings()[key] == value


def test_a_moved_port_base_moves_every_default_address_by_the_same_distance():
    moved = settings("node.port_base=6300")

    assert moved["admin.bind_addr"] == HostPort("127.0.0.1", 6300)
    assert moved["echo.bind_addr"] == HostPort("127.0.0.1", 6310)
    assert settings("node.port_base=6300", "echo.bind_addr=127.0.0.1:99")["echo.bind_addr"].port == 99


def test_ephemeral_ports_are_all_zero():
    assert settings("node.ephemeral_ports=true")["admin.bind_addr"].port == 0


def test_macro_serves_metrics_apart_a_thousand_ports_up_and_leaves_on_fatal():
    macro = settings("node.profile=macro")

    assert macro["echo.metrics_addr"] == HostPort("127.0.0.1", 6310)
    assert macro["node.exit_on_fatal"] is True
    assert settings("node.profile=macro", "echo.bind_addr=127.0.0.1:65000")["echo.metrics_addr"].port == 0
    assert settings("node.profile=macro", "echo.metrics_addr=")["echo.metrics_addr"] is None


@pytest.mark.parametrize(("text", "good"), [("1s", True), ("5s", True), ("999ms", False), ("5001ms", False)])
def test_the_drain_deadline_stays_in_its_range(text, good):
    with nullcontext() if good else pytest.raises(ConfigFaults, match=r"1s\.\.5s"):
        assert settings(f"echo.drain_deadline={text}").seconds("echo.drain_deadline") in {1.0, 5.0}


def test_checks_are_never_off_on_an_address_others_can_reach():
    assert faulty_keys("node.insecure_dev=true", "echo.bind_addr=0.0.0.0:80") == ["echo.bind_addr"]
    assert faulty_keys("node.insecure_dev=true", "echo.metrics_addr=10.0.0.1:80") == ["echo.metrics_addr"]
    assert settings("node.insecure_dev=true", "echo.bind_addr=[::1]:80")
    assert settings("echo.bind_addr=0.0.0.0:80")["admin.open_metrics"] is True


def test_metrics_are_not_open_by_default_where_others_can_reach_them():
    assert settings("admin.bind_addr=0.0.0.0:80")["admin.open_metrics"] is False


def test_amnesia_uses_no_unix_socket():
    assert faulty_keys("node.amnesia=true", "echo.uds.path=/run/echo.sock") == ["echo.uds.path"]


def test_half_of_tls_is_refused_once_where_it_was_given():
    assert faulty_keys("http.tls.cert_path=/c") == ["http.tls.cert_path"]
    assert faulty_keys("http.tls.cert_path=/c", "http.tls.key_path=/k", "echo.tls.key_path=") == ["echo.tls.cert_path"]
    assert settings("http.tls.cert_path=/c", "http.tls.key_path=/k")


def test_the_per_peer_cap_is_a_quarter_of_the_tables_own_cap():
    assert settings("echo.max_conns=80")["echo.max_conns_per_ip"] == 20
    assert settings("echo.max_conns=80", "http.max_conns_per_ip=7")["echo.max_conns_per_ip"] == 7
    assert settings("http.max_conns=2")["echo.max_conns_per_ip"] == 1


def test_a_service_may_have_its_own_default_and_range_and_still_inherits():
    table = service_table("gate", port_offset=6, keys=(Key("max_conns", Kind.INT, 512, low=1, high=600),))
    schema = node_schema(table)

    assert load(schema, Sources())["gate.max_conns"] == 512
    assert load(schema, Sources(sets=("http.max_conns=300",)))["gate.max_conns"] == 300
    with pytest.raises(ConfigFaults, match="own table"):
        load(schema, Sources(sets=("http.max_conns=601",)))


def test_the_listener_view_holds_every_common_key_with_its_unit():
    view = listener_settings(settings("http.read_timeout=1s", "echo.read_timeout=2s", "echo.uds.allow_uids=7"), "echo")

    assert isinstance(view, ListenerSettings)
    assert (view.host, view.port, view.read_timeout_s, view.uds_allow_uids) == ("127.0.0.1", 5310, 2.0, (7,))
    assert (view.body_bytes_max, view.decompress_ratio_cap, view.tls_cert_path) == (1 << 20, 10, None)


def test_the_body_budget_is_a_sixteenth_of_a_small_machine():
    key = SCHEMA.keys["node.body_bytes"].default

    assert key.compute(64 << 30) == 128 << 20
    assert key.compute(1 << 30) == 64 << 20
    assert key.compute(1 << 20) == 1 << 20


def test_every_key_says_what_it_means():
    assert [name for name, key in SCHEMA.keys.items() if not key.help.endswith((".", "`"))] == []
