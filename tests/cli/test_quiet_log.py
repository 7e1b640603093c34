"""The log of a node on a terminal: refusals are summed up, routine is left out, and nothing that matters is lost."""

from __future__ import annotations

import logging

from penstock.cli.quiet_log import HeldStart, QuietLog


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


def test_tasks_that_are_cut_off_are_told_together() -> None:
    quiet = QuietLog()
    passed = [quiet.filter(record("task.aborted", logging.WARNING, task=f"worker[{n}]")) for n in range(150)]

    assert not any(passed)
    assert quiet.summary() == "150 tasks cut off in the last 10 s: 150 of svc-mailbox\n"
    assert quiet.summary() == ""


def test_routine_is_left_out_and_warnings_never_are() -> None:
    quiet = QuietLog()

    assert not quiet.filter(record("phase", phase="draining"))
    assert quiet.filter(record("phase", logging.WARNING))
    assert quiet.filter(record("store.damaged", logging.ERROR))
    assert quiet.filter(record("config.changed"))
    assert quiet.filter(logging.makeLogRecord({"msg": "of another library", "levelno": logging.INFO}))


class Kept(logging.Handler):
    """Keeps the events it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.events.append(record.fields["event"])  # type: ignore[attr-defined]


def test_the_routine_of_a_start_waits_until_the_node_is_ready_and_warnings_do_not() -> None:
    kept = Kept()
    held = HeldStart([kept])
    kept.addFilter(held)
    for each in (record("phase"), record("store.damaged", logging.ERROR), record("drained")):
        kept.handle(each)
    before = list(kept.events)
    held.release()
    kept.handle(record("shutdown"))

    assert before == ["store.damaged"]
    assert kept.events == ["store.damaged", "phase", "drained", "shutdown"]


def test_more_than_can_be_held_is_written_at_once() -> None:
    held = HeldStart([])

    assert [held.filter(record("phase")) for _ in range(258)] == [False] * 256 + [True] * 2
