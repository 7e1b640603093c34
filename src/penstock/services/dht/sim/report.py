"""The report of a simulation as data and as text. Nothing in it depends on how long the run took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.services.dht.sim.gates import WINDOW_S, quantile, success

if TYPE_CHECKING:
    from penstock.services.dht.sim.run import SimReport
    from penstock.services.dht.sim.scenario import SimResult

_SHARES = (0.5, 0.95, 0.99)


def as_data(report: SimReport) -> dict[str, object]:
    """Return the report as one JSON object."""
    main = report.main
    options = main.options
    looked = main.looked
    count = max(1, len(looked))
    return {
        "nodes": options.nodes,
        "lookups": len(looked),
        "seed": options.seed,
        "success": round(success(looked), 5),
        "hops": {f"p{share * 100:.0f}": quantile([each.hops for each in looked], share) for share in _SHARES},
        "latency_ms": {
            f"p{share * 100:.0f}": round(1000 * quantile([each.took_s for each in looked], share), 1)
            for share in _SHARES
        },
        "messages_a_lookup": round(sum(each.messages for each in looked) / count, 2),
        "hedges_a_lookup": round(sum(each.hedges for each in looked) / count, 2),
        "messages": main.messages,
        "joins": main.joins,
        "leaves": main.leaves,
        "killed": main.killed,
        "size_estimate": round(main.size_estimate),
        "success_after_death": windows(main) if options.dead else [],
        "gates": [
            {"name": gate.name, "measured": gate.measured, "allowed": gate.allowed, "holds": gate.holds}
            for gate in report.gates
        ],
        "holds": report.holds,
    }


def windows(result: SimResult) -> list[float]:
    """Return the success of the first ten minutes after the mass death, one number a minute."""
    died = result.options.dead_at_s
    shares = []
    for minute in range(10):
        start = died + minute * WINDOW_S
        window = [each for each in result.looked if start <= each.at_s < start + WINDOW_S]
        if window:
            shares.append(round(success(window), 4))
    return shares


def as_text(report: SimReport) -> str:
    """Write the report for people."""
    data = as_data(report)
    lines = [f"{name.replace('_', ' '):<22} {value}" for name, value in data.items() if name not in {"gates", "holds"}]
    width = max(len(gate.name) for gate in report.gates)
    lines.append("")
    lines += [
        f"{'ok  ' if gate.holds else 'FAIL'} {gate.name:<{width}}  {gate.measured} (must be {gate.allowed})"
        for gate in report.gates
    ]
    return "\n".join(lines)
