"""Kill the process in the middle of its work, again and again: nothing is lost, nothing acked comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.services.mailbox.ledger import STORED_MIN, Ledger, run

CYCLES = 3


@pytest.mark.real_loop
async def test_killed_mailbox_loses_nothing_and_brings_nothing_back(tmp_path: Path) -> None:
    ledger = await run(CYCLES, 0.3, tmp_path)

    assert len(ledger.stored) >= STORED_MIN * CYCLES
    assert ledger.lost() == set()
    assert ledger.reappeared == []


def test_ledger_catches_a_lost_and_a_returning_message() -> None:
    ledger = Ledger(stored={"a", "b"}, settled={"a"})
    ledger.saw(["a"])

    assert ledger.lost() == {"b"}
    assert ledger.reappeared == ["a"]
