"""Kill the process in the middle of its work, again and again: nothing is lost, nothing acked comes back."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.services.mailbox.ledger import STORED_MIN, Ledger, run
from tests.services.mailbox.settings_ledger import SettingsLedger
from tests.services.mailbox.settings_ledger import run as run_with_settings
from tests.services.mailbox.spoiling import Damages, Promised

CYCLES = 5


@pytest.mark.real_loop
async def test_killed_mailbox_loses_nothing_and_damage_to_its_files_is_never_silent(tmp_path: Path) -> None:
    damages = Damages(random.Random(5))
    ledger = await run(CYCLES, 0.3, tmp_path / "mailbox", damages)

    assert sum(damages.done.values()) == CYCLES
    assert damages.silent == []

    assert len(ledger.stored) >= STORED_MIN * CYCLES
    assert ledger.lost() == set()
    assert ledger.reappeared == []


def test_ledger_catches_a_lost_and_a_returning_message() -> None:
    ledger = Ledger(stored={"a", "b"}, settled={"a"})
    ledger.saw(["a"])

    assert ledger.lost() == {"b"}
    assert ledger.reappeared == ["a"]


def test_what_is_missing_or_back_after_a_damage_is_counted() -> None:
    promised = Promised(there={"a", "b"}, gone={"c"}, sent={"a", "b", "c", "d"})

    assert promised.broken_by({"a", "b", "d"}) == {}
    assert promised.broken_by({"b", "c", "x"}) == {"missing": 1, "back": 1, "foreign": 1}


@pytest.mark.real_loop
async def test_killed_mailbox_with_settings_keeps_order_and_takes_each_idem_key_once(tmp_path: Path) -> None:
    ledger = await run_with_settings(2, 0.2, tmp_path / "mailbox")

    assert ledger.faults() == {}
    assert len(ledger.stored) >= 100


def test_settings_ledger_catches_a_wrong_order_and_a_double() -> None:
    ledger = SettingsLedger(stored={"t-3"})
    ledger.saw(["t-3", "t-0", "t-1", "t-1!"])

    assert ledger.faults() == {"overtaken": 1, "doubled": 1}
