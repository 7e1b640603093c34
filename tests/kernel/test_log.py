"""Logging: one event a line, and nothing secret in it."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernel import log_writer
from penstock.kernel.inventory import Inventory
from penstock.kernel.log import REDACTED, JsonFormatter, Log, TextFormatter, redact
from penstock.kernel.log_writer import BYTES_MAX, LINES_MAX, WRITER, LogWriter, declare_log

SECRET = [
    "token", "access_token", "Authorization", "payload", "payload_b64", "secret", "webhook_secret", "signature",
    "x-signature",
    "password", "cookie", "set-cookie", "private_key", "key", "keys", "api_key", "apikey", "X-Api-Key", "idem_key",
    "body",
    "address", "seed", "receipt", "cap", "capability",
]  # fmt: skip
OPEN = ["corr_id", "service", "event", "shard", "monkey", "keyword", "queue", "capacity", "addressed_to_nobody_else"]
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(SECRET + OPEN), inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.parametrize("name", SECRET)
@pytest.mark.parametrize(
    "nest",
    [
        lambda f: f,
        lambda f: {"a": f},
        lambda f: {"a": [f]},
        lambda f: {"a": ({"b": [1, f]},)},
        lambda f: {1: f},
    ],
    ids=["top", "nested", "in a list", "deep", "under a number"],
)
def test_a_secret_name_is_redacted_at_every_depth(name, nest) -> None:
    told = repr(redact(nest({name: "hunter2", name.upper(): "hunter2"})))

    assert "hunter2" not in told
    assert REDACTED in told


@pytest.mark.parametrize("name", OPEN)
def test_an_ordinary_name_is_kept(name) -> None:
    assert redact({name: "value"}) == {name: "value"}


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(SECRET + OPEN), _JSON, max_size=4))
def test_redacting_keeps_the_names_and_is_stable(fields) -> None:
    once = redact(fields)

    assert set(once) == set(fields)
    assert redact(once) == once


def _record(caplog, say) -> logging.LogRecord:
    with caplog.at_level(logging.DEBUG, logger="penstock"):
        say(Log("svc-test"))
    return caplog.records[-1]


def test_an_event_is_one_json_line_with_its_fields(caplog) -> None:
    record = _record(caplog, lambda log: log.info("send.accepted", corr_id="c-1", text="two\nlines", token="hunter2"))
    line = JsonFormatter().format(record)

    assert "\n" not in line
    told = json.loads(line)
    assert told.pop("ts").endswith("+00:00")
    assert told == {
        "level": "info", "service": "svc-test", "event": "send.accepted", "corr_id": "c-1", "text": "two\nlines",
        "token": REDACTED,
    }  # fmt: skip


def test_an_error_carries_its_type_and_stack(caplog) -> None:
    def fail(log: Log) -> None:
        try:
            raise KeyError("planted")
        except KeyError as error:
            log.error("job.failed", error=error, corr_id="c-1")

    told = json.loads(JsonFormatter().format(_record(caplog, fail)))

    assert (told["error"], told["level"]) == ("KeyError", "error")
    assert "in fail" in told["stack"]


def test_records_of_other_libraries_are_lines_too() -> None:
    record = logging.LogRecord("uvloop", logging.WARNING, __file__, 1, "lost %s", ("it",), None)

    assert json.loads(JsonFormatter().format(record))["event"] == "lost it"
    assert TextFormatter(colour=False).format(record).endswith("warning uvloop lost it")


def test_a_terminal_line_reads_time_level_service_event_fields(caplog) -> None:
    record = _record(caplog, lambda log: log.warning("task.aborted", task="worker", secret="hunter2"))

    assert (
        TextFormatter(colour=False).format(record)[13:]
        == f"warning svc-test task.aborted task=worker secret={REDACTED}"
    )
    assert "\x1b[33m" in TextFormatter(colour=True).format(record)


def test_a_value_json_does_not_know_is_told_as_text(caplog) -> None:
    record = _record(caplog, lambda log: log.debug("odd", value={1, 2} - {2}, raw=b"x"))
    told = json.loads(JsonFormatter().format(record))

    assert (told["value"], told["raw"]) == ("{1}", "b'x'")


def test_the_queue_is_declared_with_its_bounds_and_its_losses() -> None:
    inventory = Inventory("node")
    declare_log(inventory)
    rows = inventory.rows()

    assert {name: rows["channels"][0][name] for name in ("name", "capacity", "full", "depth", "dropped")} == {
        "name": "log", "capacity": LINES_MAX, "full": "drop_oldest", "depth": WRITER.depth, "dropped": WRITER.dropped,
    }  # fmt: skip
    assert (rows["limits"][0]["name"], rows["limits"][0]["capacity"]) == ("log_bytes", BYTES_MAX)
    assert inventory.metrics.value("log_dropped_total") == WRITER.dropped


def test_a_line_written_in_the_middle_of_another_is_counted_and_so_is_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, finalizers = LogWriter(), ["from a finalizer\n"]

    def collecting(sized: bytes) -> int:
        # The collector may run wherever something is called.
        if finalizers:
            writer.write(finalizers.pop())
        return sized.__len__()

    with (tmp_path / "log").open("wb", buffering=0) as file:
        writer.point_to(file)
        monkeypatch.setattr(log_writer, "len", collecting, raising=False)
        writer.write("outer\n")
        monkeypatch.undo()
        settled = writer.close(20.0)

    assert (settled, writer.waiting_bytes) == (True, 0)
    assert (tmp_path / "log").read_text("ascii") == "from a finalizer\nouter\n"
