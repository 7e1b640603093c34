"""A start loads what it needs and no more: the number of modules is bounded, because it only ever grows by accident.

Nothing here is timed; `scripts/bench start` is.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

# A little more than there are. Whoever meets a bound loads something later, or raises it and says why.
MODULES_MAX = {"version": 55, "up": 760}
# Needed by few nodes, or only when somebody asks.
LATER = {
    "version": {"asyncio", "json", "msgspec", "platform", "subprocess", "penstock.kernel"},
    "up": {
        "gzip",
        "importlib.resources",
        "opentelemetry",
        "penstock.admin.docs_page",
        "penstock.sdk",
        "penstock.services.dht.sim",
        "penstock.testing",
        "penstock.weave",
        "prometheus_client",
        "rich",
        "uvloop",
    },
}


def loaded_by(command: str) -> set[str]:
    """Name what is loaded when the module of a command is, beyond what a bare python loads."""
    code = f"""
import sys
before = set(sys.modules)
import penstock.__main__, penstock.cli
penstock.cli.parser_of({{{command!r}}})
print(*(set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return set(done.stdout.split())


@pytest.mark.parametrize("command", MODULES_MAX)
def test_a_start_loads_few_modules(command):
    loaded = loaded_by(command)

    assert 20 < len(loaded) <= MODULES_MAX[command]
    assert LATER[command].isdisjoint(loaded)
