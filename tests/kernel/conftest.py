"""Lock checks are on in every kernel test."""

from __future__ import annotations

import pytest

from penstock.kernel import lock


@pytest.fixture(autouse=True)
def lock_checks():
    lock.set_debug(on=True)
    yield
    lock.set_debug(on=True)  # a test may have turned it off; the plugin has it on for everybody
