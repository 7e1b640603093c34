"""`penstock doctor`: check a node, a data directory or a URL, and say what is wrong and what to do."""

from __future__ import annotations

import argparse
import os
import shutil
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from penstock.cli import asking, running

if TYPE_CHECKING:
    from penstock.kernel.errors import PenstockError
    from penstock.sdk import Client
    from penstock.sdk.remote_place import NodePlace

_FREE_BYTES_LOW = 1 << 30
_PUBLIC = 0o077
_NEW = "Get a new one (penstock token issue makes one), and name it by --token-file or PENSTOCK_TOKEN_FILE."


class CheckupFinding(NamedTuple):
    """One thing that was looked at."""

    verdict: Literal["ok", "note", "wrong"]
    what: str
    # What to do about it.
    hint: str = ""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    asking.add(parser)


def run(args: argparse.Namespace) -> int:
    """Look at everything that can be looked at; exit 1 when something is wrong."""
    from penstock.kernel.errors import PenstockError

    findings = [_python()]
    try:
        place = running.place(args)
    except PenstockError as error:
        findings.append(CheckupFinding("wrong", error.detail, str(error.facts.get("hint", ""))))
        return _tell(args, findings)
    if args.url is None:
        findings += _directory(running.directory(args) or Path(), place)
    if findings[-1].verdict != "wrong":
        asking.play(args, lambda: _ask(args, place, findings))
    return _tell(args, findings)


def _tell(args: argparse.Namespace, findings: list[CheckupFinding]) -> int:
    for finding in findings:
        if args.json:
            asking.print_json(finding._asdict())
        else:
            hint = f"\n       {finding.hint}" if finding.hint else ""
            sys.stdout.write(f"{finding.verdict:<5}  {finding.what}{hint}\n")
    return asking.FAILED if any(finding.verdict == "wrong" for finding in findings) else 0


def _python() -> CheckupFinding:
    return CheckupFinding("ok", f"Python {sys.version.split()[0]}")


def _directory(where: Path, place: NodePlace) -> list[CheckupFinding]:
    """Look at the files of a node of this machine; a place that is a URL has none here."""
    from penstock.sdk.discovery import Discovery

    if not isinstance(place, Discovery):
        return []
    if not where.is_dir():
        hint = "Start a node (penstock up), or say where it is (--data-dir, --url)."
        return [CheckupFinding("wrong", f"There is no data directory {where}.", hint)]
    found = [CheckupFinding("ok", f"The data directory is {where.absolute()}.")]
    if not os.access(where, os.R_OK | os.X_OK):
        return [
            CheckupFinding(
                "wrong", f"{where} belongs to another user.", "Work as that user, or go by --url with a token."
            )
        ]
    token = where / "operator.token"
    if token.exists() and stat.S_IMODE(token.stat().st_mode) & _PUBLIC:
        found.append(
            CheckupFinding("wrong", f"{token} can be read by others.", f"chmod 600 {token}, then revoke the token.")
        )
    return [*found, _disk(where)]


def _disk(where: Path) -> CheckupFinding:
    from penstock.wire.plain_words import size_text

    free = shutil.disk_usage(where).free
    if free < _FREE_BYTES_LOW:
        return CheckupFinding("note", f"The disk has {size_text(free)} left.", "Sends are refused when it is full.")
    return CheckupFinding("ok", f"The disk has {size_text(free)} left.")


async def _ask(args: argparse.Namespace, place: NodePlace, findings: list[CheckupFinding]) -> int:
    from penstock.kernel.errors import PenstockError
    from penstock.sdk import Client, SdkOptions

    async with Client(place, SdkOptions(timeout_s=args.timeout / 1000, tries_max=1)) as client:
        for look in (_reach, _token, _mailbox):
            try:
                findings += await look(client, args)
            except PenstockError as error:
                findings.append(CheckupFinding("wrong", *_said(error, args, place)))
                if look is _reach:
                    break
    return 0


def _said(error: PenstockError, args: argparse.Namespace, place: NodePlace) -> tuple[str, str]:
    """Return what is wrong and what to do."""
    from penstock.sdk.errors import NoNode

    hint = str(error.facts.get("hint", ""))
    where = running.directory(args)
    if where is not None and (isinstance(error, NoNode) or "out of reach" in error.detail):
        named = f"penstock up --data-dir {where}" if running.said(args) else "penstock up"
        return f"No node is running in {where.absolute()}.", hint or f"Start one there with {named}."
    if hint or "out of reach" not in error.detail:
        return error.detail, hint
    return f"Nothing answers at {place.url('passport')}.", "Check the host and the port, and that the node runs."


async def _reach(client: Client, args: argparse.Namespace) -> list[CheckupFinding]:
    """Ask for something that needs no token."""
    from penstock.wire.plain_words import counted

    keys = await client.passport.keys()
    url = client.place.url("passport")
    where = running.directory(args)
    node = f"The node at {url}" if where is None else f"The node in {where.absolute()}"
    found = [CheckupFinding("ok", f"{node} answers, with {counted(len(keys), 'signing key')}.")]
    if url.startswith("http:") and args.url is not None and not _is_local(url):
        found.append(
            CheckupFinding("note", "The token travels unencrypted.", "Give the gateway a certificate (omnigate.tls).")
        )
    return found


def _is_local(url: str) -> bool:
    return any(f"//{host}" in url for host in ("127.", "localhost", "[::1]"))


async def _token(client: Client, args: argparse.Namespace) -> list[CheckupFinding]:
    """Have the node judge the token, and show readiness to whoever may see it."""
    token = client.place.token()
    if not token:
        return [CheckupFinding("wrong", "No token is used.", "Give --token-file or PENSTOCK_TOKEN.")]
    verdict = await client.passport.verify(token)
    if not verdict.ok or verdict.claims is None:
        return [CheckupFinding("wrong", f"The node does not accept the token: {verdict.reason}.", _NEW)]
    found = [CheckupFinding("ok", f"The token is good; its subject is {verdict.claims.sub}.")]
    if verdict.claims.sub != "operator":
        return found
    status = running.fetch(args, "GET", "/v1/node/status")
    return found if status is None else [*found, *_services(status), *_upstreams(args, status)]


def _services(status: dict[str, Any]) -> list[CheckupFinding]:
    from penstock.wire.plain_words import counted

    found = [CheckupFinding("ok", "All services are ready.")] if status["ready"] else []
    for service in status["services"]:
        name, hint = service["service"], "The node's log tells why."
        found += (CheckupFinding("wrong", f"{name} is not ready: {gate}.", hint) for gate in service["missing"])
        if service["restarts"]:
            found.append(CheckupFinding("note", f"{name} was restarted {counted(service['restarts'], 'time')}."))
    return found


def _upstreams(args: argparse.Namespace, status: dict[str, Any]) -> list[CheckupFinding]:
    """Have the gateway dial the upstreams of its routes."""
    from penstock.cli.payloads import printable
    from penstock.cli.upstreams import failing
    from penstock.wire.plain_words import counted

    if not any(service["service"] == "omnigate" and service["ready"] for service in status["services"]):
        return []
    told = running.fetch(args, "GET", "/v1/node/routes?dial=true")
    if not told or not told["routes"]:
        return []
    down = [
        CheckupFinding("wrong" if each.alone else "note", printable(each.said()), each.hint(running.said(args)))
        for each in failing(told["routes"], dialled=True)
    ]
    routes = len(told["routes"])
    well = f"The upstreams of {counted(routes, 'route')} answer."
    return down or [CheckupFinding("ok", well)]


async def _mailbox(client: Client, args: argparse.Namespace) -> list[CheckupFinding]:
    """Count what waits and what is dead."""
    from penstock.wire.plain_words import counted

    topics = await client.mailbox.topics()
    dead = [stats for stats in topics if stats.dlq]
    waiting = sum(stats.ready for stats in topics)
    wait = f"{counted(waiting, 'message')} {'waits' if waiting == 1 else 'wait'} in {counted(len(topics), 'topic')}."
    found = [CheckupFinding("ok", wait)]
    where, redrives = running.said(args), _may_redrive(client.place.token())
    for stats in dead:
        hint = f"penstock dlq show {stats.topic}{where}, then penstock dlq redrive {stats.topic}{where}"
        hint = hint if redrives else "Somebody whose token allows op=admin can look at them and send them back."
        found.append(CheckupFinding("note", f"{stats.topic} has {counted(stats.dlq, 'dead letter')}.", hint))
    return found


def _may_redrive(token: str) -> bool:
    """Tell whether a token allows to see dead letters and to send them back."""
    from penstock.capability.token import decode

    ops = [set(caveat.words) for caveat in decode(token).caveats if caveat.name == "op"]
    return bool(ops) and all({"admin", "*"} & words for words in ops)
