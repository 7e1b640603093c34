"""`penstock open`: make a new link to the operator's page, and open it in a browser."""

from __future__ import annotations

import argparse
import json
import sys

from penstock.cli import running

# The page is at the admin listener, which the gateway does not lead to.
_ELSEWHERE = (
    "the operator's page of {} cannot be opened from here: run penstock open on the node's machine, by its data"
    " directory. To see it here, lead the admin port there first: ssh -L 5300:127.0.0.1:5300 HOST, with the node's own"
    " admin port for both 5300 if penstock up --port-base or admin.bind_addr moved it; penstock up prints it as admin"
)


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    running.add(parser)
    parser.add_argument("--print", action="store_true", help="only print the link")
    parser.add_argument("--json", action="store_true", help="print one JSON object and open nothing")


def run(args: argparse.Namespace) -> int:
    """Print the link, which works once, for five minutes; on a terminal open it too."""
    url = running.remote(args)
    if url is not None:
        return running.refuse(args, _ELSEWHERE.format(url), code="unsupported")
    done = running.fetch(args, "POST", "/v1/node/link")
    if done is None:
        return 1
    if args.json:
        sys.stdout.write(json.dumps(done) + "\n")
        return 0
    sys.stdout.write(f"{done['link']}\n")
    if not args.print and sys.stdout.isatty():
        import webbrowser

        webbrowser.open(done["link"])
    return 0
