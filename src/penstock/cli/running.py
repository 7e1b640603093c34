"""Finds a running node by its URL, a context or its data directory, and asks what the admin listener answers."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import http.client

    from penstock.sdk.remote_place import NodePlace

_TIMEOUT_S = 5.0


class _Refused(Exception):
    """The node refused."""

    def __init__(self, told: dict[str, Any]) -> None:
        """Keep the problem that the node described."""
        super().__init__()
        self.told = told


class NodeSilent(Exception):
    """The node gave no good answer; the message says why."""

    def __init__(self, sentence: str, code: str) -> None:
        """Say it in a sentence, with the code of the error."""
        super().__init__(sentence)
        self.code = code


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    reach = parser.add_argument_group("which node")
    reach.add_argument("--data-dir", type=Path, help="the node's data directory")
    add_elsewhere(reach)


def add_elsewhere(reach: argparse._ActionsContainer) -> None:
    """Declare the options that name a node by something else than its data directory."""
    reach.add_argument("--url", help="the URL of a node elsewhere, its gateway's")
    reach.add_argument("--context", metavar="NAME", help="a node that penstock context knows")
    reach.add_argument("--token-file", type=Path, metavar="FILE", help="a file that holds the token to act with")
    reach.add_argument("--ca", type=Path, metavar="FILE", help="certificates that the node's own is held against")


def add_directory(parser: argparse.ArgumentParser) -> None:
    """Declare the one option of a command that works on the files of a node."""
    where = Path(os.environ.get("PENSTOCK_DATA_DIR") or ".penstock")
    parser.add_argument("--data-dir", type=Path, default=where, help="the node's data directory")


def place(args: argparse.Namespace) -> NodePlace:
    """Return the node that the options name, else the environment, else the context in use, else `./.penstock`."""
    from penstock.cli import BadUse
    from penstock.sdk.contexts import Contexts
    from penstock.sdk.finding import Whereabouts, find
    from penstock.sdk.remote_place import base_url

    if args.url and args.data_dir:
        raise BadUse("Give --url or --data-dir, not both.")
    if "" in (args.url, args.context):
        # From a variable of a script that is not set: the next place in the list is another node.
        raise BadUse(
            f"{'--url' if args.url == '' else '--context'} is empty. Say which node is meant, or leave it out."
        )
    if args.url:
        base_url(args.url)
    where = args.url or args.data_dir
    named = ("PENSTOCK_URL", "PENSTOCK_DATA_DIR", "PENSTOCK_CONTEXT")
    context = args.context
    if where is None and context is None and not any(os.environ.get(name) for name in named):
        context = Contexts.of(os.environ).current
    return find(Whereabouts(where=where, token_file=args.token_file, ca=args.ca, context=context))


def remote(args: argparse.Namespace) -> str | None:
    """Return the URL of the node that is meant; None for one that is known by its data directory."""
    from penstock.kernel.errors import PenstockError
    from penstock.sdk.remote_place import RemotePlace

    if not hasattr(args, "context"):
        return None
    try:
        found = place(args)
    except PenstockError:
        return None
    return found.url("admin") if isinstance(found, RemotePlace) else None


def directory(args: argparse.Namespace) -> Path | None:
    """Return the data directory of the node that is meant; None for one that is known by its URL."""
    if not hasattr(args, "context"):
        return getattr(args, "data_dir", None)
    from penstock.sdk.contexts import Contexts
    from penstock.sdk.remote_place import RemotePlace

    if isinstance(place(args), RemotePlace):
        return None
    if args.data_dir is not None:
        return Path(args.data_dir)
    contexts = Contexts.of(os.environ)
    name = args.context
    if name is None and not os.environ.get("PENSTOCK_DATA_DIR"):
        name = os.environ.get("PENSTOCK_CONTEXT") or contexts.current
    known = None if name is None else contexts.get(name).data_dir
    return Path(known or os.environ.get("PENSTOCK_DATA_DIR") or ".penstock")


def said(args: argparse.Namespace) -> str:
    """Return the options that led to the node, for a command that somebody is told to run next; empty without any."""
    import shlex

    names = ("data_dir", "url", "context", "token_file", "ca")
    given = [(f"--{name.replace('_', '-')}", getattr(args, name, None)) for name in names]
    return "".join(f" {option} {shlex.quote(str(value))}" for option, value in given if value is not None)


def refuse(args: argparse.Namespace, sentence: str, *, code: str, exit_code: int = 1) -> int:
    """Report a failure in a sentence, with --json also as an object with a `code`; returns the exit code."""
    if getattr(args, "json", False):
        sys.stdout.write(json.dumps({"error": {"code": code, "detail": sentence}}) + "\n")
        sys.stdout.flush()
    sys.stderr.write(f"penstock: {sentence}\n")
    return exit_code


def fetch(args: argparse.Namespace, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - any JSON
    """Ask the node as its operator; on failure say why in one sentence and return None."""
    try:
        return ask_node(args, method, path, body)
    except NodeSilent as failed:
        refuse(args, str(failed), code=failed.code)
    return None


def ask_node(args: argparse.Namespace, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - any JSON
    """Ask the node as its operator; `NodeSilent` says in a sentence why there is no good answer."""
    import http.client

    from penstock.cli import BadUse
    from penstock.cli.failing import no_node, not_a_node, nothing_answers
    from penstock.kernel.errors import Malformed, PenstockError
    from penstock.sdk.errors import NoNode
    from penstock.sdk.reach_hints import url_hint

    url, token, away = "?", "", "downstream_unavailable"
    try:
        found = place(args)
        url, token = found.url("admin"), found.token()
        return _ask(_connect(found, url), token, method, urlsplit(url).path + path, body)
    except Malformed as error:
        # What the node itself refuses is `_Refused`: here the options or the environment are wrong.
        raise BadUse(f"{error.detail} {error.facts.get('hint', '')}".strip()) from None
    except PenstockError as error:
        said = f"{error.detail} {error.facts.get('hint', '')}".strip()
        none = isinstance(error, NoNode) and not error.facts
        raise NodeSilent(no_node(directory(args)) if none else said, error.code) from None
    except ConnectionRefusedError:
        said = nothing_answers(url, "connection refused") if remote(args) else no_node(directory(args))
        said = f"{said} {url_hint('out of reach')}" if remote(args) else said
        raise NodeSilent(said, away) from None
    except _Refused as refused:
        raise NodeSilent(_refusal(args, refused.told, token), str(refused.told.get("code", "internal"))) from None
    except json.JSONDecodeError:
        raise NodeSilent(not_a_node(url), away) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NodeSilent(_no_answer(url, error), away) from None


def _refusal(args: argparse.Namespace, told: dict[str, Any], token: str) -> str:
    """Return what the node has against it; a token of somebody else is the reason of most refusals here."""
    from penstock.cli.failing import FailureWords, operator_only, words

    said = FailureWords(str(told.get("detail", "")), str(told.get("hint", "")))
    subject = _subject(token) if told.get("code") in ("unauthenticated", "forbidden") else ""
    if subject not in ("", "operator"):
        return " ".join(operator_only(subject)).strip()
    better = words(said, reason=str(told.get("reason", "")), url=remote(args))
    tells_it = "refused" in said.said or better.said != said.said
    prefix = "" if tells_it else "the node refused: "
    return f"{prefix}{' '.join(better)}".strip()


def _subject(token: str) -> str:
    """Return whose a token says it is; empty where it cannot be read."""
    from penstock.capability.token import decode
    from penstock.kernel.errors import PenstockError

    try:
        return decode(token).root.sub
    except PenstockError:
        return ""


def _no_answer(url: str, error: Exception) -> str:
    from penstock.sdk.reach_hints import reach_hint, url_hint

    why = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    hint = reach_hint(str(error)) or url_hint("out of reach")
    return f"the node at {url} did not answer: {why}. {hint}"


def _connect(found: NodePlace, url: str) -> http.client.HTTPConnection:
    import http.client

    parts = urlsplit(url)
    if parts.scheme == "http":
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
    context = found.context("admin")
    return http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_S, context=context)


def _ask(link: http.client.HTTPConnection, token: str, method: str, path: str, body: object) -> Any:  # noqa: ANN401
    # What no header can carry is no token; the node shall say so, not the codec.
    shown = "".join(char if char.isascii() and char.isprintable() else "?" for char in token)
    headers = {"Content-Type": "application/json"}
    if shown:
        headers["Authorization"] = f"Bearer {shown}"
    try:
        link.request(method, path, None if body is None else json.dumps(body), headers)
        answer = link.getresponse()
        told = json.loads(answer.read() or b"null")
    finally:
        link.close()
    if answer.status >= 400:
        raise _Refused({"detail": answer.reason, **(told if isinstance(told, dict) else {})})
    return told
