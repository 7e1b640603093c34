"""Every async test runs on virtual time, by the project's own plugin; `pytester` tests that plugin itself."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

pytest_plugins = ["penstock.testing.plugin", "pytester"]

# No example is timed: how long one takes says how busy the machine is. And a run that decides about a change draws the
# same examples every time; `./scripts/test --full` draws new ones.
settings.register_profile(
    "penstock",
    deadline=None,
    derandomize=not os.environ.get("PENSTOCK_TEST_FULL"),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("penstock")
