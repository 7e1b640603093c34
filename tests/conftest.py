"""Every async test runs on virtual time, by the project's own plugin; and one node that many tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.acceptance.node_process import NodeProcess

pytest_plugins = ["penstock.testing.plugin", "penstock.weave.plugin", "pytester"]

# No example is timed: how long one takes says how busy the machine is. And a run that decides about a change draws the
# same examples every time; `./scripts/test --full` draws new ones.
settings.register_profile(
    "penstock",
    deadline=None,
    derandomize=not os.environ.get("PENSTOCK_TEST_FULL"),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("penstock")

# A shell starts what runs in the background with Ctrl-C ignored, and every process of a test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node with a data directory that tests of many modules share: each uses topics, tokens and objects of its own.

    A test that stops it, sets it up otherwise or counts everything on it starts one of its own by `NodeProcess`.
    """
    with NodeProcess(data_dir=tmp_path_factory.mktemp("node") / ".penstock") as running:
        yield running


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Run pytest inside a test, without the plugin of schemathesis.

    To import that plugin replaces Hypothesis's printer in this process: every counterexample after it lacks its values.
    """
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:schemathesis")
    return pytester
