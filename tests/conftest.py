"""Every async test runs on virtual time, by the project's own plugin; `pytester` tests that plugin itself."""

from __future__ import annotations

pytest_plugins = ["penstock.testing.plugin", "pytester"]
