"""`penstock dht`: provide, withdraw and find keys, look at the table; simulate a network or run a swarm."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli import asking

if TYPE_CHECKING:
    from penstock.sdk import Client
    from penstock.services.dht.sim.options import SimOptions


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(metavar="action", required=True)
    provide = _data(actions, "provide", "announce that this node provides a key", _provide)
    provide.add_argument("key", help="64 hex digits, or b3: and 64 hex digits")
    provide.add_argument("--addr", action="append", metavar="ADDR", help="where it is provided; repeatable")
    provide.add_argument("--ttl", type=asking.duration_ms, metavar="TIME", help="how long it counts: 60s to 48h")
    _data(actions, "withdraw", "take an announcement back", _withdraw).add_argument("key")
    find = _data(actions, "find", "find who provides a key", _find)
    find.add_argument("key")
    find.add_argument("--limit", type=int, help="go on until so many are found (1-64)")
    find.add_argument(
        "--wait", type=asking.duration_ms, default=2000, metavar="TIME", help="at most so long (default 2s)"
    )
    find.add_argument("--paths", type=int, default=1, help="disjoint paths to ask along (1-3)")
    _data(actions, "table", "show the routing table", _table)
    _data(actions, "status", "show how the node stands in the network", _status)
    ping = _data(actions, "ping", "dial a node and see who answers", _ping)
    ping.add_argument("address", help="host:port of its peer listener")
    _add_sim(actions.add_parser("sim", help="simulate a network on a virtual clock"))
    _add_swarm(actions.add_parser("swarm", help="run many real nodes on loopback in this process"))


def _data(actions: Any, name: str, text: str, act: Any) -> argparse.ArgumentParser:  # noqa: ANN401 - private types
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text)
    asking.add(parser)
    parser.set_defaults(action=act)
    return parser


def _add_sim(sim: argparse.ArgumentParser) -> None:
    sim.add_argument("--nodes", type=int, default=10_000)
    sim.add_argument("--lookups", type=int, default=100_000)
    sim.add_argument("--churn", type=_share_an_hour, default=0.1, metavar="SHARE/h", help="such as 10%%/h")
    sim.add_argument("--dead", type=_share, default=0.2, metavar="SHARE", help="killed at once in the middle: 20%%")
    sim.add_argument("--seed", type=int, default=1)
    sim.add_argument("--loss", type=_share, default=0.001, metavar="SHARE", help="messages that are lost")
    sim.add_argument("--nat", type=_share, default=0.05, metavar="SHARE", help="nodes nobody can dial")
    sim.add_argument("--partition", type=_share, default=0.0, metavar="SHARE", help="cut off for five minutes")
    sim.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the results (needs matplotlib)")
    sim.add_argument("--json", action="store_true", help="print one JSON object")
    sim.set_defaults(action=_sim)


def _add_swarm(swarm: argparse.ArgumentParser) -> None:
    swarm.add_argument("--nodes", type=int, default=200)
    swarm.add_argument("--seed", type=int, default=1)
    swarm.add_argument(
        "--json", action="store_true", help="print only JSON lines (the default says progress on stderr)"
    )
    swarm.set_defaults(action=_swarm)


def run(args: argparse.Namespace) -> int:
    """Do what was asked."""
    code: int = args.action(args)
    return code


# --- asking a node
# -----------------------------------------------------------------------------------------------------


def _ask(args: argparse.Namespace, call: Any, show: Any) -> int:  # noqa: ANN401 - two lambdas
    async def work(client: Client) -> int:
        answer = await call(client)
        if args.json:
            asking.print_json(asking.plain(answer))
        else:
            sys.stdout.write(show(answer) + "\n")
        return 0

    return asking.ask(args, work)


def _provide(args: argparse.Namespace) -> int:
    ttl_s = None if args.ttl is None else args.ttl // 1000
    return _ask(
        args,
        lambda client: client.dht.provide(args.key, addrs=args.addr, ttl_s=ttl_s),
        lambda made: (
            f"stored at {made.stored} nodes, {made.pending} pending, {made.hops} hops, {made.elapsed_ms:.1f} ms"
        ),
    )


def _withdraw(args: argparse.Namespace) -> int:
    return _ask(args, lambda client: client.dht.withdraw(args.key), lambda _done: "withdrawn")


def _find(args: argparse.Namespace) -> int:
    return _ask(
        args,
        lambda client: client.dht.find(args.key, limit=args.limit, wait_ms=args.wait, paths=args.paths),
        _show_found,
    )


def _show_found(found: Any) -> str:  # noqa: ANN401 - the contract's Providers
    lines = [f"{each.node_id[:16]}  {' '.join(each.addrs)}" for each in found.providers] or ["nobody provides it"]
    whole = "complete" if found.complete else "not complete"
    lines.append(f"({found.hops} hops, {found.messages} messages, {found.elapsed_ms:.1f} ms, {whole})")
    return "\n".join(lines)


def _table(args: argparse.Namespace) -> int:
    def show(table: Any) -> str:  # noqa: ANN401 - JSON
        rows = [f"{'bucket':>6} {'size':>4} {'spares':>6} {'groups':>6}  last lookup"]
        rows += [
            f"{b['bucket']:>6} {b['size']:>4} {b['spares']:>6} {b['groups']:>6}  {b['last_lookup_s_ago']:.0f} s ago"
            for b in table["buckets"]
        ]
        return "\n".join([*rows, f"{table['contacts']} contacts"])

    async def work(client: Client) -> int:
        table = await client.dht.table()
        if args.json:
            asking.print_json(table)
        else:
            sys.stdout.write(show(table) + "\n")
        return 0

    return asking.ask(args, work)


def _status(args: argparse.Namespace) -> int:
    def show(status: Any) -> str:  # noqa: ANN401 - the contract's DhtStatus
        plain = asking.plain(status)
        said = {True: "yes", False: "no"}
        return "\n".join(
            f"{name.replace('_', ' '):<17} {said[value] if isinstance(value, bool) else value}"
            for name, value in plain.items()
        )

    return _ask(args, lambda client: client.dht.status(), show)


def _ping(args: argparse.Namespace) -> int:
    host, _, port = args.address.rpartition(":")
    if not host or not port.isdigit():
        return asking.refuse(args, f"{args.address!r} is no address: write host:port")
    return _ask(
        args,
        lambda client: client.dht.ping(host.strip("[]"), int(port)),
        lambda pong: f"{pong.node_id} answered in {pong.elapsed_ms:.1f} ms",
    )


# --- the simulation
# ------------------------------------------------------------------------------------------------------


def _share(text: str) -> float:
    """Read `20%` or `0.2`."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share: write 20% or 0.2")
    return value


def _share_an_hour(text: str) -> float:
    return _share(text.removesuffix("/h"))


def _sim_options(args: argparse.Namespace) -> SimOptions:
    from penstock.services.dht.sim.options import SimOptions

    return SimOptions(
        nodes=args.nodes, lookups=args.lookups, churn=args.churn, dead=args.dead, seed=args.seed, loss=args.loss,
        natted=args.nat, partition=args.partition,
    )  # fmt: skip


def _sim(args: argparse.Namespace) -> int:
    """Simulate; the report goes to stdout, progress and the time it took to stderr."""
    if args.nodes < 50 or args.lookups < 1:
        return asking.refuse(args, "a simulation needs at least 50 nodes and one lookup")
    from rich.console import Console
    from rich.progress import Progress

    from penstock.kernel.errors import PenstockError
    from penstock.services.dht.sim import plot, report
    from penstock.services.dht.sim.run import run as simulate

    began = time.monotonic()
    with Progress(console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def progress(name: str, share: float) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=1.0)
            bar.update(tasks[name], completed=share)

        found = simulate(_sim_options(args), progress)
    if args.json:
        asking.print_json(report.as_data(found))
    else:
        sys.stdout.write(report.as_text(found) + "\n")
    sys.stderr.write(f"took {time.monotonic() - began:.0f} s\n")
    if args.plot is not None:
        try:
            plot.draw(found.main, args.plot)
        except PenstockError as error:
            return asking.explain(args, error)
    return 0 if found.holds else 1


# --- the swarm
# -------------------------------------------------------------------------------------------------------------


def _swarm(args: argparse.Namespace) -> int:
    """Run the nodes until `stop` or the end of the input."""
    from penstock.services.dht.swarm.options import SwarmOptions

    if args.nodes < 1:
        return asking.refuse(args, "a swarm needs a node at least")
    import uvloop

    try:
        uvloop.run(_run_swarm(SwarmOptions(nodes=args.nodes, seed=args.seed), quiet=args.json))
    except ValueError as error:
        return asking.refuse(args, str(error))
    except TimeoutError as error:
        sys.stderr.write(f"penstock: {error}\n")
        return asking.NOT_READY
    return 0


async def _run_swarm(options: Any, *, quiet: bool) -> None:  # noqa: ANN401 - imported only when it is used
    from penstock.services.dht.swarm.session import converse, print_line
    from penstock.services.dht.swarm.swarm import Swarm

    swarm = Swarm(options)

    def progress(count: int) -> None:
        if not quiet and (count % 10 == 0 or count == options.nodes):
            sys.stderr.write(
                f"\r{count} of {options.nodes} nodes have joined{'' if count < options.nodes else chr(10)}"
            )
            sys.stderr.flush()

    try:
        await swarm.start(progress)
        await converse(swarm, print_line)
    finally:
        await swarm.close()
