"""Print how the code of each service is held to its specification: `python -m tests.models.table [--full] [NAME ...]`.

One row for each world that is explored: what TLC found in the specification, what weave explored of the code, how many
steps of the code were looked at and lay outside of the specification, and which steps of the specification no schedule
took. `--full` adds the worlds that take minutes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from penstock import weave
from tests.models import drain_model, gate_model, issue_model, mailbox_model, webhook_model
from tests.models.kit import graph

HEAD = (
    "| specification | states, steps | world | mode | schedules, states | steps of the code, outside | "
    "shown steps taken | shown steps never taken |\n|---|---|---|---|---|---|---|---|"
)


@contextmanager
def _fixed_bytes() -> Iterator[None]:
    """Have tokens of the passport be the same in every run."""
    plain, os.urandom = os.urandom, issue_model.fixed_bytes
    try:
        yield
    finally:
        os.urandom = plain


@dataclass(frozen=True, kw_only=True)
class HeldWorld:
    """One world of the code, and the configuration that it is held to."""

    config: str
    told: str
    program: Callable[[], Any]
    mode: Any = "any"
    full: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def row(self) -> str:
        """Explore it; tell what was found."""
        refinement = weave.Refinement(graph(self.config))
        with _fixed_bytes() if self.config.startswith("Issue") else nullcontext():
            report = weave.explore(self.program, mode=self.mode, refines=refinement, seconds=None, **self.options)
        outside = 0 if report.verdict == "holds" and report.complete else report.message
        unused = ", ".join(f"{count} {action}" for action, count in refinement.unshown_by_action().items())
        taken, shown = refinement.shown_steps()
        states, steps = len(refinement.graph.states), len(refinement.graph.edges)
        return (
            f"| `{self.config}` | {states}, {steps} | {self.told} | {self.mode} "
            f"| {report.schedules:,}, {report.states:,} "
            f"| {refinement.steps:,}, {outside} | {taken} of {shown} | {unused or 'none'} |"
        )


def _issue(*changes: str, jobs: int, **said: Any) -> HeldWorld:
    told = f"{jobs} job{'s'[: jobs - 1]} against {', '.join(changes)}"
    config = "Issue" if jobs > 1 else "Issue_one"
    options = {"ignores": issue_model.IGNORES, "threads": "prompt"}
    return HeldWorld(
        config=config, told=told, program=partial(issue_model.issue, changes, jobs=jobs), options=options, **said
    )


def _mailbox(action: str, happens: str = "", **said: Any) -> HeldWorld:
    beside = {"": "", "stop": ", and a stop"}.get(happens, f", and the {happens} is killed")
    told = f"one message, {action} against the end of its lease{beside}"
    program = partial(mailbox_model.lease, action, happens=happens)
    options = {"ignores": mailbox_model.IGNORES, "threads": "prompt"}
    return HeldWorld(config="Mailbox_one", told=told, program=program, options=options, **said)


def _gate(leaver: int = 0, **said: Any) -> HeldWorld:
    told = "3 requests, 1 slot, 2 places, a drain" + (f", request {leaver} leaves" if leaver else "")
    program = partial(gate_model.gate, 3, leaver=leaver)
    return HeldWorld(config="Gate", told=told, program=program, options={"ignores": gate_model.IGNORES}, **said)


def _webhook(events: tuple[str, ...], faults: tuple[str, ...], **said: Any) -> HeldWorld:
    told = f"{len(events)} event{'s'[: len(events) - 1]} against {', '.join(faults)}"
    config = "Webhook" if len(events) > 1 else "Webhook_one"
    program = partial(webhook_model.webhooks, events, faults, replays=0)
    return HeldWorld(config=config, told=told, program=program, options={"ignores": webhook_model.IGNORES}, **said)


WORLDS = [
    HeldWorld(
        config="Drain",
        told="2 workers, 3 jobs, a stop",
        program=partial(drain_model.drain, 3, 2),
        options={"ignores": drain_model.IGNORES},
    ),
    _gate(),
    _gate(2, mode="fifo"),
    _gate(2, full=True),
    _issue("policy", "revoke", "rotate", jobs=1, mode="fifo"),
    _issue("revoke", jobs=1),
    _issue("revoke", "rotate", jobs=1, full=True),
    _issue("policy", "revoke", "rotate", jobs=2, mode="fifo", full=True),
    _mailbox("ack", mode="fifo"),
    _mailbox("nack", mode="fifo"),
    _mailbox("extend", mode="fifo"),
    _mailbox("ack", full=True),
    _mailbox("ack", "stop", mode="fifo", full=True),
    _mailbox("ack", "shard_worker", mode="fifo", full=True),
    _mailbox("ack", "writer", mode="fifo", full=True),
    _webhook(("a",), ("kill",), mode="fifo"),
    _webhook(("a", "b"), ("kill",), mode="fifo", full=True),
]


def main() -> None:
    """Print the table; with fixed string hashes, so that two runs print the same."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these specifications")
    parser.add_argument("--full", action="store_true")
    args = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        command = [sys.executable, "-m", "tests.models.table", *sys.argv[1:]]
        raise SystemExit(subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": "0"}, check=False).returncode)
    sys.stdout.write(f"{HEAD}\n")
    for world in WORLDS:
        if (args.full or not world.full) and (not args.names or world.config.partition("_")[0] in args.names):
            sys.stdout.write(f"{world.row()}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
