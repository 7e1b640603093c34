"""`penstock context`: names for nodes, so that no command has to say where one is."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli import asking, running

if TYPE_CHECKING:
    from penstock.sdk.contexts import Contexts, NodeContext


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(metavar="action", required=True)
    new = actions.add_parser("add", help="give a node a name, or change what the name stands for")
    new.add_argument("name", help="letters, digits, dots, dashes and underscores")
    where = new.add_mutually_exclusive_group(required=True)
    where.add_argument("--url", help="the URL of its gateway, or of one service")
    where.add_argument("--data-dir", type=Path, help="its data directory on this machine")
    new.add_argument("--token-file", type=Path, metavar="FILE", help="a file that holds the token to act with")
    new.add_argument("--ca", type=Path, metavar="FILE", help="certificates that the node's own is held against")
    new.add_argument("--use", action="store_true", help="have the commands go by it from now on")
    _finish(new, _add)
    use = actions.add_parser("use", help="have the commands go by this node from now on")
    use.add_argument("name", nargs="?", help="which; left out with --none")
    use.add_argument("--none", action="store_true", help="by none: ./.penstock again")
    _finish(use, _use)
    _finish(actions.add_parser("list", help="show every name; the one in use has a star"), _list)
    gone = actions.add_parser("remove", help="forget a name")
    gone.add_argument("name", help="which")
    _finish(gone, _remove)


def _finish(parser: argparse.ArgumentParser, action: Any) -> None:  # noqa: ANN401 - one of the functions below
    parser.add_argument("--json", action="store_true", help="print JSON, one object a line")
    parser.set_defaults(action=action)


def run(args: argparse.Namespace) -> int:
    """Do what was asked; nothing is dialled."""
    from penstock.kernel.errors import PenstockError
    from penstock.sdk.contexts import Contexts

    try:
        return int(args.action(Contexts.of(os.environ), args))
    except PenstockError as error:
        return asking.explain(args, error)


def _add(contexts: Contexts, args: argparse.Namespace) -> int:
    from penstock.sdk.contexts import NodeContext
    from penstock.sdk.remote_place import base_url

    # Absolute, because the commands will be called elsewhere.
    files = {name: _absolute(getattr(args, name)) for name in ("data_dir", "token_file", "ca")}
    context = NodeContext(url=None if args.url is None else base_url(args.url), **files)
    for name in ("token_file", "ca"):
        if files[name] is not None and not Path(str(files[name])).is_file():
            sys.stderr.write(f"penstock: note: there is no file {files[name]} yet\n")
    contexts.put(args.name, context)
    if args.use:
        contexts.use(args.name)
    return _show(args, args.name, context, current=contexts.current == args.name)


def _absolute(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())


def _use(contexts: Contexts, args: argparse.Namespace) -> int:
    if (args.name is None) is not args.none:
        return running.refuse(args, "name a context, or say --none", code="malformed", exit_code=asking.BAD_USE)
    contexts.use(args.name)
    if args.json:
        asking.print_json({"current": args.name})
    return 0


def _list(contexts: Contexts, args: argparse.Namespace) -> int:
    current = contexts.current
    for name, context in contexts.all().items():
        _show(args, name, context, current=name == current)
    return 0


def _remove(contexts: Contexts, args: argparse.Namespace) -> int:
    contexts.remove(args.name)
    if args.json:
        asking.print_json({"removed": args.name})
    return 0


def _show(args: argparse.Namespace, name: str, context: NodeContext, *, current: bool) -> int:
    said = asking.plain(context)
    if args.json:
        asking.print_json({"name": name, "current": current, **said})
        return 0
    where = context.url or context.data_dir
    rest = "".join(f"  {key.replace('_', ' ')} {said[key]}" for key in ("token_file", "ca") if key in said)
    sys.stdout.write(f"{'*' if current else ' '} {name}  {where}{rest}\n")
    return 0
