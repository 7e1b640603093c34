"""Tables for people."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from penstock.cli.console import Console
from penstock.cli.grid import grid
from penstock.cli.payloads import glimpse, printable
from penstock.kernel.clock import SYSTEM
from penstock.wire.plain_words import age_text, counted, size_text

if TYPE_CHECKING:
    from penstock.cli.node_told import NodeTold
    from penstock.cli.upstreams import FailingUpstream
    from penstock.contracts.mailbox import DeadLetter, Envelope, Peeked, TopicStats

# A pipe has no width. Nothing is cut to fit: an id without its end is of no use to whoever reads it.
_PIPE_COLUMNS: Final = 200
_COLUMNS_MIN: Final = 40
_console: Final = Console()
_QUEUES_NAMED: Final = 3
# How much of an error stands in a table, and what stands for the rest.
_ERROR_CHARS: Final = 80
_CUT: Final = " ..."
_NUMBER: Final = re.compile(r"-|[\d.,]+")
_RECENT_S: Final = 20 * 3600


def inventory(services: dict[str, dict[str, list[dict[str, Any]]]]) -> None:
    """Print every table of every service."""
    for service, tables in services.items():
        for name, rows in tables.items():
            _print(f"{service}: {name}", rows)


def _print(title: str, rows: list[dict[str, Any]]) -> None:
    columns = [column for column in rows[0] if column not in ("item", "full", "backoff", "crash_loop")]
    say(Text(f"\n{title}", "italic"))
    cells = [[printable(_text(row.get(column, ""))) for column in columns] for row in rows]
    table_of([column.replace("_", " ") for column in columns], cells, "")


def status(node: dict[str, Any], down: Iterable[FailingUpstream] = (), where: str = "") -> None:
    """Print the verdict first, then a row for each service, then the upstreams that fail."""
    verdict = ("fatal", "red") if node["fatal"] else ("ready", "green") if node["ready"] else ("not ready", "yellow")
    why = (
        f" ({node['fatal']})"
        if node["fatal"]
        else f" (missing: {', '.join(node['missing'])})"
        if node["missing"]
        else ""
    )
    _console.print(Text.assemble("node: ", verdict, printable(why)))
    columns = ("service", "phase", "ready", "queued work", "dropped", "restarts", "brownout", "gates to look at")
    table_of(columns, [_service(row) for row in node["services"]], "no services")
    if any("dht_peers" in row["degraded"] for row in node["services"]):
        say(Text("dht_peers degraded: no other node answers. A node on its own needs none.", "dim"))
    for each in down:
        say(Text(printable(each.said()), "yellow"))
        say(Text(printable(each.hint(where)), "dim"))


def _service(row: dict[str, Any]) -> tuple[object, ...]:
    queues = [queue for queue in row["channels"] if queue["kind"] == "mpsc"]
    gates = [*(f"{gate} shut" for gate in row["missing"]), *(f"{gate} degraded" for gate in row["degraded"])]
    ready, dropped = "yes" if row["ready"] else "no", sum(queue["dropped"] for queue in queues)
    return (
        row["service"], row["phase"], ready, _depths(queues), dropped, row["restarts"], _brownout(row), ", ".join(gates)
    )  # fmt: skip


def _depths(queues: list[dict[str, Any]]) -> str:
    """Return how much work waits inside a service, and its fullest channels; the messages of topics are not meant."""
    fullest = sorted(queues, key=lambda queue: queue["depth"] / queue["capacity"], reverse=True)[:_QUEUES_NAMED]
    named = (f"{q['name']} {q['depth']}/{q['capacity']}" for q in fullest if q["depth"])
    return " ".join([str(sum(queue["depth"] for queue in queues)), *named])


def _brownout(row: dict[str, Any]) -> str:
    told = {None: "-", False: "no"}.get(row.get("brownout"), "yes")
    return f"{told}: {printable(row['brownout_why'])}" if row.get("brownout_why") else told


def message(found: Envelope | Peeked, *, with_receipt: bool, full: bool = True, state: str | None = None) -> None:
    """Print one message: its facts, its state if given, then its payload with control characters written out."""
    facts = [found.topic, *([state] if state else []), f"attempt {found.attempt}", when(found.ts)]
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
        (row.topic + (" (paused)" if row.paused else ""), row.ready, row.inflight, row.delayed, row.dlq,
         size_text(row.bytes), age_text(row.oldest_age_s) if row.ready + row.inflight + row.delayed else "-",
         f"{row.send_rate:.1f}", f"{row.ack_rate:.1f}")
        for row in rows
    ]  # fmt: skip
    table_of(columns, cells, "no topics")


def say_totals(rows: Sequence[TopicStats], told: NodeTold | None) -> None:
    """Print whether the node is ready, and what all its topics hold and do together.

    Topics that are drained are forgotten and stand in no row, so only the node knows what was sent and acked in all.
    """
    verdict = {True: ("ready", "green"), False: ("not ready", "yellow"), None: ("?", "dim")}[told and told.ready]
    counts = {name: sum(getattr(row, name) for row in rows) for name in ("ready", "inflight", "delayed", "dlq")}
    if told is not None and told.send_rate is not None and told.ack_rate is not None:
        rates = f"{told.send_rate:.0f} sent/s, {told.ack_rate:.0f} acked/s"
    else:
        sent, acked = (sum(getattr(row, name) for row in rows) for name in ("send_rate", "ack_rate"))
        rates = f"in them {sent:.0f} sent/s, {acked:.0f} acked/s"
    waits = f"{counts['ready']} waiting, {counts['inflight']} in flight, {counts['delayed']} delayed, "
    # Two lines, each of which a terminal of 80 columns has room for.
    say(Text.assemble("node: ", verdict, f"   {counted(len(rows), 'topic')}, {rates}"))
    say(Text(f"{waits}{counts['dlq']} dead"))


def dead_letters(rows: Iterable[DeadLetter]) -> None:
    """Print a row for each dead letter."""
    columns = ("msg_id", "topic", "died", "reason", "tries", "error")
    cells: list[tuple[str, str, str, str, int, str]] = [
        (row.msg_id, row.topic, short_when(row.dead_at), printable(row.reason), row.attempts, _last_error(row))
        for row in rows
    ]
    table_of(columns, cells, "no dead letters")
    if any(row[-1].endswith(_CUT) for row in cells):
        say(Text("errors are cut here; penstock dlq show TOPIC MSG_ID has all of one", "dim"))


def _last_error(letter: DeadLetter) -> str:
    """Return what the last attempt that told an error said; its class is the reason already."""
    told = (attempt.error.message for attempt in reversed(letter.history) if attempt.error is not None)
    said = next(told, "")
    first = said.partition("\n")[0][:_ERROR_CHARS]
    return printable(first) + (_CUT if first != said else "")


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
    columns_wide = max(_COLUMNS_MIN, get_terminal_size().columns) if sys.stdout.isatty() else _PIPE_COLUMNS
    cells = [[str(cell) for cell in row] for row in rows]
    right = [at > 0 and all(_NUMBER.fullmatch(row[at]) for row in cells) for at in range(len(columns))]
    laid = grid(columns, cells, columns_wide, right)
    say(Text(laid.heading, "bold"))
    for line in laid.lines:
        say(Text(line))


def say(text: Text) -> None:
    """Print a text that is not cut to the width of the terminal."""
    _console.print(text, soft_wrap=True)


def when(unix_ms: int) -> str:
    """Write a time."""
    return datetime.fromtimestamp(unix_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def short_when(unix_ms: int) -> str:
    """Write a time for a narrow column: of the last day the time alone."""
    said = when(unix_ms)
    return said.rpartition(" ")[2] if SYSTEM.wall() - unix_ms / 1000 < _RECENT_S else said.rpartition(":")[0]


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
