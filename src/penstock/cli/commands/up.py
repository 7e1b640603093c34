"""`penstock up`: run the whole node."""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import running
from penstock.cli import settings as options
from penstock.cli.countdown import Countdown
from penstock.cli.endings import ending_in_words, plain_ending
from penstock.cli.output import Output
from penstock.cli.quiet_log import HeldStart, QuietLog, SummaryTimer, hold_start, quieten
from penstock.kernel.errors import PenstockError, Timeout
from penstock.kernel.lifecycle import Phase
from penstock.kernel.log import Log, configure, settle
from penstock.net.server.listener import CannotBind
from penstock.net.server.tls import CertificateRefused
from penstock.node import process
from penstock.node.build import Node, fit_connections
from penstock.node.data_dir import TOKEN_FILE, DataDir, DataDirRefused, new_token
from penstock.node.port_owner import owner_of
from penstock.node.preflight import look_ahead
from penstock.node.service_notice import notify
from penstock.node.services import KEEPERS, schema
from penstock.node.trust_source import NeedsPassport

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.cli.console import Console
    from penstock.config import Settings, Sources
    from penstock.kernel.health import Gate


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    options.add(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON line when ready and one a phase change")


def run(args: argparse.Namespace) -> int:
    """Run the whole node."""
    return start(args, only=None)


def start(args: argparse.Namespace, *, only: str | None) -> int:
    """Check the settings, then run the node, or `only` one service of it, until told to stop."""
    given = options.sources(args)
    settings = options.load_or_explain(schema(), given, as_json=args.json)
    if settings is None:
        return process.BAD_CONFIG
    if settings.text("node.profile") == "macro":
        said = "this build runs the micro profile only; use --profile micro"
        return running.refuse(args, said, code="malformed", exit_code=process.BAD_CONFIG)
    configure(settings.text("node.log.format"), settings.text("node.log.level"))
    level = settings.text("node.log.level")
    quiet = None if args.json else quieten(level, settings.text("node.log.format"))
    held = hold_start(level) if quiet is None else None
    return launch(settings, given, only=only, as_json=args.json, quiet=quiet, held=held)


def launch(  # noqa: PLR0913 - what was asked for, and the two ways to hold the log back
    settings: Settings,
    given: Sources,
    *,
    only: str | None,
    as_json: bool,
    quiet: QuietLog | None = None,
    held: HeldStart | None = None,
) -> int:
    """Run a node, or `only` one service of it, and turn what can go wrong into one sentence and an exit code."""
    keeps = not settings.flag("node.amnesia") and (only is None or only in KEEPERS)
    data_dir = DataDir(_path(settings), only=only) if keeps else None
    caps = fit_connections(settings)
    output = Output(sys.stdout)
    fail = _Failure(output if as_json else None)
    try:
        if data_dir is not None:
            data_dir.open()
        look_ahead(settings, only=only)
        token = _own_token(settings, data_dir, only)
        talk = _Talk(data_dir, output, as_json=as_json, quiet=quiet, held=held)
        hooks = process.Hooks(ready=talk.ready, phase=talk.phase, stopped=talk.stopped)
        return process.run(
            lambda: _guarded(Node(settings, given, token=token, only=only, caps=caps), data_dir, fail), hooks
        )
    except DataDirRefused as refused:
        return fail.say(str(refused), "conflict", process.FAILED)
    except (NeedsPassport, CertificateRefused) as refused:
        fail.undo(data_dir)
        return fail.say(str(refused), "malformed", process.BAD_CONFIG)
    except CannotBind as failed:
        fail.undo(data_dir)
        return fail.say(_cannot_bind(failed), "conflict", process.CANNOT_BIND)
    except Timeout as late:
        return fail.say(f"not ready in time: {late.detail}", late.code, process.NOT_READY)
    except PenstockError as error:
        return fail.say(f"{error.detail}{_because(error)}", error.code, process.FAILED)
    except OSError as error:
        # The machine's no, wherever it was met: a full disk, a directory that may not be written.
        return fail.say(f"the node failed: {_words(error)}", "internal", process.FAILED)
    finally:
        if data_dir is not None:
            data_dir.close()
        # A crash is told after what led to it.
        output.settle()
        settle()


def _guarded(node: Node, data_dir: DataDir | None, fail: _Failure) -> Node:
    """Have the node end when its data directory is not where it was."""
    if data_dir is not None:
        node.data_dir_guard.astray = data_dir.astray
        node.data_dir_guard.end = fail.end_at_once
    return node


def _cannot_bind(failed: CannotBind) -> str:
    """Say who has the port, and what to do about it."""
    if not failed.port:
        return str(failed)
    owner = owner_of(failed.port)
    return (
        f"{failed}: {owner or 'another program'} listens there. "
        "Stop it, or choose other ports with --port-base N or --ephemeral-ports."
    )


def _own_token(settings: Settings, data_dir: DataDir | None, only: str | None) -> str:
    """Make an operator token for a node without svc-passport, which would issue a real one."""
    if only is not None or settings.flag("node.passport"):
        return ""
    return new_token() if data_dir is None else data_dir.operator_token()


def _path(settings: Settings) -> Path:
    path = settings.path("node.data_dir")
    assert path is not None
    return path.absolute()


class _Failure:
    """Reports why the node did not start: a sentence for people, and with --json an object with a `code`."""

    def __init__(self, output: Output | None) -> None:
        self._output = output

    def say(self, sentence: str, code: str, exit_code: int) -> int:
        if self._output is not None:
            self._output.say(json.dumps({"error": {"code": code, "detail": sentence}}) + "\n")
        settle()
        sys.stderr.write(f"penstock: {sentence}\n")
        return exit_code

    @staticmethod
    def undo(data_dir: DataDir | None) -> None:
        """Leave no directory behind that this start has made and nothing has used."""
        if data_dir is not None:
            data_dir.undo()

    def end_at_once(self, sentence: str) -> None:
        """Say why and end the process without a drain, as a kill would."""
        code = self.say(sentence, "conflict", process.FAILED)
        if self._output is not None:
            self._output.settle()
        sys.stderr.flush()
        os._exit(code)


def _because(error: PenstockError) -> str:
    """Name the cause of an error that has no message."""
    cause = "" if error.__cause__ is None else _words(error.__cause__)
    return f" ({cause})" if cause and cause not in error.detail else ""


def _words(error: BaseException) -> str:
    """Return an OS error as a sentence: without its number, with the file it is about."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.strerror}: {error.filename}" if error.filename else error.strerror


def _draining(node: Node) -> dict[str, float]:
    """Name the services that are draining, each with how long it may take."""
    ending = (Phase.DRAINING, Phase.ABORTING)
    supervisors = [part.supervisor for part in node.parts]
    return {each.service: each.options.drain_deadline_s for each in supervisors if each.phase.value in ending}


def _shut(node: Node) -> list[tuple[str, Gate]]:
    """Name the shut gates of a node that runs but is not ready, such as that of a service with a damaged store."""
    healths = [(part.supervisor.service, part.supervisor.inventory.health) for part in node.parts]
    return [(service, gate) for service, health in healths for gate in health.gates() if not gate.open]


class _Talk:
    """What the node prints about itself on standard output."""

    def __init__(
        self, data_dir: DataDir | None, output: Output, *, as_json: bool, quiet: QuietLog | None, held: HeldStart | None
    ) -> None:
        self._data_dir = data_dir
        self._output = output
        self._say = output.say
        self._json = as_json
        self._countdown: Countdown | None = None
        self._quiet = quiet
        self._held = held

    def ready(self, node: Node) -> None:
        if self._held is not None:
            self._held.release()
        node.on_moved = self._write_ports
        if not self._json and not sys.stdout.closed and sys.stdout.isatty():
            limit_s: Callable[[], float] = lambda: node.settings.value.seconds("node.drain_deadline")  # noqa: E731
            self._countdown = Countdown(self._say, limit_s, lambda: _draining(node))
            self._output.dress(self._countdown.around)
        self._show(node)
        if _shut(node):
            self._say_when_ready(node)
        if self._quiet is not None:
            SummaryTimer(self._quiet).start()
        notify("READY=1")

    def _say_when_ready(self, node: Node) -> None:
        """Say once that a node which started without being ready is ready now."""
        told = False

        def look(_service: str, _gate: Gate) -> None:
            nonlocal told
            if not told and not _shut(node):
                told = True
                self._line({"event": "all_ready"}) if self._json else self._say("penstock is ready now\n")

        for part in node.parts:
            part.supervisor.inventory.health.on_flip(look)

    def _show(self, node: Node) -> None:
        self._write_ports(node)
        if self._json:
            where = None if self._data_dir is None else str(self._data_dir.path)
            token = None if node.serves_alone else node.operator_token()
            ready: dict[str, object] = {"ports": node.ports(), "token": token, "data_dir": where}
            page = {} if node.serves_alone else {"dashboard": node.page_url()}
            shut = _shut(node)
            missing = {"missing": [f"{service}/{gate.name}" for service, gate in shut]} if shut else {}
            self._line({"event": "ready", **ready, **page, **node.told(), **missing})
        else:
            self._say(self._ready_text(node))

    def _write_ports(self, node: Node) -> None:
        if self._data_dir is None:
            return
        try:
            self._write_addresses(self._data_dir, node)
        except OSError as error:
            # Without them commands need the address said to them; that is no reason not to serve.
            Log("node").warning("addresses.not_written", reason=_words(error))

    def _write_addresses(self, data_dir: DataDir, node: Node) -> None:
        if node.serves_alone:
            for door in node.doors().values():
                data_dir.write_door(door)
        else:
            data_dir.write_ports(node.ports(), node.admin_door())

    def phase(self, service: str, phase: str) -> None:
        notify("STOPPING=1")
        if self._countdown is not None:
            self._countdown.draw()
        elif self._json:
            self._line({"event": "phase", "service": service, "phase": phase})
        else:
            self._say(f"{service}: {phase}\n")

    def stopped(self, ending: process.NodeEnding) -> None:
        told = plain_ending(ending.cut, ending.cause, ending.limit_s)
        if self._data_dir is not None:
            with suppress(OSError):
                # On a full disk nobody is told how it ended; it has ended all the same.
                self._data_dir.write_ending(told)
        settle()
        if self._countdown is not None:
            self._countdown.end()
        if self._json:
            why = {"reason": told["reason"]} if ending.cut else {}
            self._line({"event": "stopped", "aborted": ending.cut, **why})
        else:
            self._say(f"stopped; {ending_in_words(told)}\n" if ending.cut else "stopped, drained cleanly\n")

    def _line(self, fields: dict[str, object]) -> None:
        self._say(json.dumps(fields) + "\n")

    def _ready_text(self, node: Node) -> str:
        from penstock.cli.console import Console, PageBuffer

        shut = _shut(node)
        page = PageBuffer(sys.stdout)
        console = Console(file=page)
        told = "penstock is up, but not ready" if shut else "penstock is ready"
        console.print(told, style="yellow" if shut else "green", soft_wrap=True, highlight=False)
        addresses = [(part.name, url) for part in node.parts if part.listener is not None for url in part.urls()]
        widest = max((len(name) for name, _url in addresses), default=0)
        # A line an address, which is never cut or folded: it is there to be copied, and to be found in a log.
        for name, url in addresses:
            console.print(f"  {name:{widest}}  {url}", soft_wrap=True, highlight=False)
        self._print_facts(console, node, shut)
        return page.getvalue()

    def _print_page(self, console: Console, node: Node) -> None:
        """Say where the operator's page is; a link that signs in is for the terminal, and not for a log or journal."""
        link = node.page_link()
        if link is None:
            return
        told = f"operator's page (works once, for 5 minutes; penstock open makes another): {link}"
        if not sys.stdout.isatty():
            told = f"operator's page (sign in with the operator token): {link.partition('#')[0]}"
        console.print(told, soft_wrap=True, highlight=False)

    def _print_facts(self, console: Console, node: Node, shut: list[tuple[str, Gate]]) -> None:
        for line in dict.fromkeys(f"not ready: {service}: {gate.why or gate.name}" for service, gate in shut):
            console.print(line, soft_wrap=True, highlight=False, markup=False)
        if shut:
            console.print("a line follows here when everything is ready", soft_wrap=True, highlight=False)
        if node.serves_alone:
            return
        if self._data_dir is None:
            told = f"operator token (kept nowhere else): {node.operator_token()}"
            console.print(told, soft_wrap=True, highlight=False)
        else:
            console.print(f"operator token: {self._data_dir.path / TOKEN_FILE}", soft_wrap=True, highlight=False)
        # Last, where it is found again; a new one is made by penstock open.
        self._print_page(console, node)
