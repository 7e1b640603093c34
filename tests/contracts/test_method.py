"""Method tables: the numbers on the wire, the generated page, and the checks at both ends."""

from __future__ import annotations

import inspect

import msgspec
import pytest

from penstock.contracts import bus, interop, mailbox, mailbox_rules, passport, storage
from penstock.contracts.method import Method, Methods
from penstock.contracts.tables import TABLES, oap_markdown
from penstock.kernel.bus import (
    ConfigUpdated,
    HealthChanged,
    ServiceCrashed,
    ShutdownRequested,
)
from penstock.kernel.errors import DownstreamUnavailable, Malformed, NotFound

CONTRACTS = [
    (mailbox.Mailbox, mailbox_rules.METHODS),
    (passport.Passport, passport.METHODS),
    (storage.Storage, storage.METHODS),
    (interop.Interop, interop.METHODS),
]


class Ask(msgspec.Struct, forbid_unknown_fields=True):
    n: int


def test_protocol_numbers_are_those_of_the_wire_document() -> None:
    assert {table.service: table.app_proto_id for table in TABLES} == {
        "mailbox": 1,
        "passport": 2,
        "storage": 3,
        "dht": 4,
        "bus": 5,
        "interop": 6,
    }


@pytest.mark.parametrize(("contract", "table"), CONTRACTS, ids=lambda v: getattr(v, "__name__", ""))
def test_table_and_protocol_name_the_same_methods_with_the_same_types(contract: type, table: Methods) -> None:
    declared = {
        name: inspect.signature(function)
        for name, function in inspect.getmembers(contract, inspect.iscoroutinefunction)
    }

    assert set(declared) == set(table.by_name)
    for method in table.rows:
        signature = declared[method.name]
        assert signature.parameters["request"].annotation == method.request.__name__
        assert signature.return_annotation == method.answer.__name__


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.service)
def test_requests_are_frozen_and_refuse_fields_they_do_not_know(table: Methods) -> None:
    for method in table.rows:
        config = method.request.__struct_config__
        assert config.frozen
        assert config.forbid_unknown_fields
        assert method.answer.__struct_config__.frozen


def test_number_or_name_used_twice_is_a_bug() -> None:
    with pytest.raises(ValueError, match="twice"):
        Methods(9, [(1, "a", Ask, Ask), (1, "b", Ask, Ask)])
    with pytest.raises(ValueError, match="twice"):
        Methods(9, [(1, "a", Ask, Ask), (2, "a", Ask, Ask)])


def test_bad_request_blames_the_caller_and_a_bad_answer_the_downstream() -> None:
    table = Methods(9, [(1, "a", Ask, Ask)])
    wrong = msgspec.msgpack.encode({"n": "x"})

    for data in (wrong, b"", b"\xc1", msgspec.msgpack.encode({"n": 1, "m": 2}), msgspec.msgpack.encode(Ask(1)) + b"x"):
        with pytest.raises(Malformed):
            table.decode_request(table.by_name["a"], data)
        with pytest.raises(DownstreamUnavailable):
            table.decode_answer(table.by_name["a"], data)


def test_checks_run_on_what_was_decoded() -> None:
    seen: list[Ask] = []
    table = Methods(9, [Method(1, "a", Ask, Ask, check_request=seen.append, check_answer=seen.append)])
    data = msgspec.msgpack.encode(Ask(1))

    table.decode_request(table.by_name["a"], data)
    table.decode_answer(table.by_name["a"], data)
    assert seen == [Ask(1), Ask(1)]


@pytest.mark.parametrize(
    "event",
    [
        HealthChanged("svc", ok=False, gate="kms"),
        ConfigUpdated(3),
        ServiceCrashed("s", "t", "r"),
        ShutdownRequested("x"),
    ],
)
def test_every_kernel_event_crosses_the_wire(event: object) -> None:
    code = bus.METHODS.event_code(event)

    assert bus.METHODS.decode_event(code, msgspec.msgpack.encode(event)) == event


def test_unknown_or_unreadable_event_is_refused() -> None:
    with pytest.raises(NotFound):
        bus.METHODS.decode_event(99, b"")
    with pytest.raises(Malformed):
        bus.METHODS.decode_event(1, b"\xc1")


def test_generated_page_lists_every_method_and_event_once() -> None:
    page = oap_markdown()

    for table in TABLES:
        assert f"## {table.app_proto_id}: {table.service}" in page
        for row in (*table.rows, *table.events):
            assert page.count(f"| {row.code} | `{row.name}` |") >= 1
    assert page.startswith("# ")
    assert page.endswith("\n")
