"""How long a client waits between two tries: full jitter towards the mailbox, as its founding document asks."""

from __future__ import annotations

import random
from pathlib import Path

from penstock.client import connect


async def test_tries_of_a_mailbox_call_are_spread_over_the_whole_window(tmp_path: Path) -> None:
    async with connect(tmp_path) as client:
        backoff = client._callers["mailbox"]._rules.backoff
        others = client._callers["storage"]._rules.backoff
    rng = random.Random(7)
    first = [backoff.delay(0, rng) for _ in range(1000)]
    late = [backoff.delay(20, rng) for _ in range(1000)]

    assert min(first) < 0.01
    assert 0.19 < max(first) < 0.2
    assert min(late) < 1.0
    assert 59.0 < max(late) < 60.0
    assert min(others.delay(0, rng) for _ in range(1000)) >= 0.05
