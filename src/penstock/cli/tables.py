"""Tables for people."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table
from rich.text import Text

from penstock.cli.console import Console
from penstock.cli.payloads import glimpse, printable
from penstock.wire.plain_words import age_text, counted, size_text

if TYPE_CHECKING:
    from penstock.contracts.mailbox import DeadLetter, Envelope, Peeked, TopicStats

# A pipe has no width, and a terminal may be too narrow; an id that was cut to fit is of no use to whoever reads it.
_COLUMNS_MIN: Final = 100
_console: Final = Console(width=max(_COLUMNS_MIN, get_terminal_size().columns) if sys.stdout.isatty() else 200)
_QUEUES_NAMED: Final = 3


def inventory(services: dict[str, dict[str, list[dict[str, Any]]]]) -> None:
    """Print every table of every service."""
    for service, tables in services.items():
        for name, rows in tables.items():
            _print(f"{service}: {name}", rows)


def _print(title: str, rows: list[dict[str, Any]]) -> None:
    columns = [column for column in rows[0] if column not in ("item", "full", "backoff", "crash_loop")]
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column.replace("_", " "))
    for row in rows:
        table.add_row(*(Text(printable(_text(row.get(column, "")))) for column in columns))
    _console.print(table)


def status(node: dict[str, Any]) -> None:
    """Print the verdict first, then a row for each service."""
    verdict = ("fatal", "red") if node["fatal"] else ("ready", "green") if node["ready"] else ("not ready", "yellow")
    why = (
        f" ({node['fatal']})"
        if node["fatal"]
        else f" (missing: {', '.join(node['missing'])})"
        if node["missing"]
        else ""
    )
    _console.print(Text.assemble("node: ", verdict, printable(why)))
    table = Table()
    for column in ("service", "phase", "ready", "gates to look at", "queued", "dropped", "restarts", "brownout"):
        table.add_column(column, no_wrap=column in ("service", "phase"))
    for row in node["services"]:
        queues = [queue for queue in row["channels"] if queue["kind"] == "mpsc"]
        table.add_row(
            row["service"],
            row["phase"],
            "yes" if row["ready"] else "no",
            ", ".join(
                [*(f"{gate} shut" for gate in row["missing"]), *(f"{gate} degraded" for gate in row["degraded"])]
            ),
            _depths(queues),
            str(sum(queue["dropped"] for queue in queues)),
            str(row["restarts"]),
            _brownout(row),
        )
    _console.print(table)


def _depths(queues: list[dict[str, Any]]) -> str:
    """Return the sum of all queues of a service, and the name of the fullest."""
    total = f"{sum(queue['depth'] for queue in queues)}/{sum(queue['capacity'] for queue in queues)}"
    fullest = sorted(queues, key=lambda queue: queue["depth"] / queue["capacity"], reverse=True)[:_QUEUES_NAMED]
    return " ".join([total, *(f"{q['name']} {q['depth']}/{q['capacity']}" for q in fullest if q["depth"])])


def _brownout(row: dict[str, Any]) -> str:
    told = {None: "-", False: "no"}.get(row.get("brownout"), "yes")
    return f"{told}: {printable(row['brownout_why'])}" if row.get("brownout_why") else told


def message(found: Envelope | Peeked, *, with_receipt: bool, full: bool = True) -> None:
    """Print one message: its facts, then its payload with control characters written out."""
    facts = [found.topic, f"attempt {found.attempt}", when(found.ts)]
    facts += [f"key {printable(found.key)}"] if found.key is not None else []
    facts += [f"{printable(name)}={printable(value)}" for name, value in sorted(found.attrs.items())]
    say(Text.assemble((found.msg_id, "bold cyan"), ("  " + "  ".join(facts), "dim")))
    say(Text(glimpse(found.payload, full=full) if found.payload is not None else "(payload not asked for)"))
    receipt = getattr(found, "receipt", None)
    if with_receipt and receipt:
        say(Text(f"penstock ack {found.msg_id} {receipt}", "dim"))


def topics(rows: Iterable[TopicStats]) -> None:
    """Print a row for each topic."""
    columns = ("topic", "ready", "inflight", "delayed", "dead", "size", "oldest", "sent/s", "acked/s")
    cells = [
        (f"{row.topic} (paused)" if row.paused else row.topic, row.ready, row.inflight, row.delayed, row.dlq, size_text(row.bytes), age_text(row.oldest_age_s),
         f"{row.send_rate:.1f}", f"{row.ack_rate:.1f}")
        for row in rows
    ]  # fmt: skip
    table_of(columns, cells, "no topics")


def say_totals(rows: Sequence[TopicStats], ready: bool | None) -> None:  # noqa: FBT001 - unknown is the third
    """Print one line about all topics together, and whether the node is ready."""
    verdict = {True: ("ready", "green"), False: ("not ready", "yellow"), None: ("?", "dim")}[ready]
    counts = {name: sum(getattr(row, name) for row in rows) for name in ("ready", "inflight", "delayed", "dlq")}
    rates = f"{sum(row.send_rate for row in rows):.0f} sent/s, {sum(row.ack_rate for row in rows):.0f} acked/s"
    waits = f"{counts['ready']} waiting, {counts['inflight']} in flight, {counts['delayed']} delayed, "
    say(Text.assemble("node: ", verdict, f"   {counted(len(rows), 'topic')}, {waits}{counts['dlq']} dead; {rates}"))


def dead_letters(rows: Iterable[DeadLetter]) -> None:
    """Print a row for each dead letter."""
    columns = ("msg_id", "topic", "reason", "attempts", "died", "tried")
    cells = [
        (row.msg_id, row.topic, printable(row.reason), row.attempts, when(row.dead_at),
         ", ".join(printable(attempt.cause) for attempt in row.history))
        for row in rows
    ]  # fmt: skip
    table_of(columns, cells, "no dead letters")


def dead_letter(letter: DeadLetter, message_of: Peeked | None, *, full: bool = True) -> None:
    """Print one dead letter: why it died, what was tried, the last error, and the message itself."""
    say(Text.assemble((letter.msg_id, "bold cyan"), (f"  {letter.topic}  {printable(letter.reason)}", "bold")))
    say(Text(f"sent {when(letter.ts)}, died {when(letter.dead_at)} after {counted(letter.attempts, 'attempt')}", "dim"))
    for number, attempt in enumerate(letter.history, 1):
        say(Text(f"  {number}. {when(attempt.at)}  {printable(attempt.cause)}"))
    error = next((attempt.error for attempt in reversed(letter.history) if attempt.error is not None), None)
    if error is not None:
        say(Text(f"{printable(error.class_)}: {printable(error.message)}", "red"))
        for line in error.traceback.splitlines():
            say(Text(f"  {printable(line)}", "dim"))
    if message_of is not None and message_of.payload is not None:
        say(Text(glimpse(message_of.payload, full=full)))


def table_of(columns: Sequence[str], rows: Sequence[Sequence[object]], nothing: str) -> None:
    """Print rows under their columns; `nothing` where there are none."""
    if not rows:
        say(Text(nothing, "dim"))
        return
    table = Table()
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 or isinstance(rows[0][number], str) else "right")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    _console.print(table)


def say(text: Text) -> None:
    """Print a text that is not cut to the width of the terminal."""
    _console.print(text, soft_wrap=True)


def when(unix_ms: int) -> str:
    """Write a time."""
    return datetime.fromtimestamp(unix_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
