"""The log of a node on a terminal: refusals are summed up, routine is left out, and nothing that matters is lost."""

from __future__ import annotations

import logging

from penstock.cli.quiet_log import QuietLog


def record(event: str, level: int = logging.INFO, **fields: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"levelno": level})
    made.fields = {"event": event, "service": "svc-mailbox", **fields}
    return made


def test_refusals_are_counted_and_told_together() -> None:
    quiet = QuietLog()
    passed = [quiet.filter(record("request.refused", reason="forbidden", status=403)) for _ in range(3)]
    quiet.filter(record("request.refused", reason="not_found", unsaid=1769))

    assert passed == [False] * 3
    assert quiet.summary() == (
        "1773 requests refused in the last 10 s: 1770 not_found (svc-mailbox), 3 forbidden (svc-mailbox)\n"
    )
    assert quiet.summary() == ""


def test_routine_is_left_out_and_warnings_never_are() -> None:
    quiet = QuietLog()

    assert not quiet.filter(record("phase", phase="draining"))
    assert quiet.filter(record("phase", logging.WARNING))
    assert quiet.filter(record("store.damaged", logging.ERROR))
    assert quiet.filter(record("config.changed"))
    assert quiet.filter(logging.makeLogRecord({"msg": "of another library", "levelno": logging.INFO}))
