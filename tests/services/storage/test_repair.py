"""`penstock storage check` and `repair`: everything that can be read is saved, and what is lost is named."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from blake3 import blake3

from penstock import cli
from penstock.kernel.errors import Integrity, NotFound
from penstock.services.storage.engines.disk import RealStorageDisk
from penstock.services.storage.engines.packs import StoreDamaged, read_packs
from penstock.services.storage.engines.repair import look, repair
from penstock.services.storage.pack_format import HEADER_BYTES
from penstock.wire.ids import address_of
from tests.services.storage.test_packs import DATA, PACK, fill, flip, reopened
from tests.services.storage.worlds import make_loose


def readable(directory: Path) -> list[bytes]:
    """Return what can be read of the objects; whatever is read is right."""
    engine, found = reopened(directory), []
    for data in DATA:
        try:
            found.append(engine.find(address_of(data)).data)
        except (NotFound, Integrity):
            continue
    assert set(found) <= set(DATA)
    return found


def test_store_in_good_order_has_nothing_to_repair(tmp_path: Path) -> None:
    fill(tmp_path, seal=True)
    make_loose(tmp_path, b"of an earlier version")

    assert look(tmp_path) == []
    assert repair(tmp_path).kept_in == ""


def test_damaged_header_costs_no_object(tmp_path: Path) -> None:
    fill(tmp_path)
    flip(tmp_path / PACK, 20)
    assert look(tmp_path) == ["pack 1: its header is damaged"]
    with pytest.raises(StoreDamaged):
        reopened(tmp_path)
    report = repair(tmp_path)

    assert (report.rebuilt, report.saved, report.lost) == ([1], len(DATA), [])
    assert readable(tmp_path) == DATA
    assert look(tmp_path) == []
    assert (Path(report.kept_in) / "00000001").exists()


def test_damaged_head_costs_only_the_objects_it_names(tmp_path: Path) -> None:
    fill(tmp_path)
    flip(tmp_path / PACK, HEADER_BYTES)
    with pytest.raises(StoreDamaged):
        reopened(tmp_path)
    repair(tmp_path)

    assert readable(tmp_path) == DATA[2:]


def test_damaged_name_is_told_as_lost(tmp_path: Path) -> None:
    fill(tmp_path)
    pack = tmp_path / PACK
    flip(pack, pack.read_bytes().index(blake3(DATA[2]).digest()))
    report = repair(tmp_path)

    assert len(report.lost) == 1
    assert readable(tmp_path) == [data for data in DATA if data != DATA[2]]


@pytest.mark.parametrize("gone", [1, 2])
def test_missing_pack_costs_what_was_in_it_and_nothing_else(tmp_path: Path, gone: int) -> None:
    fill(tmp_path, seal=True)
    (tmp_path / "packs" / f"{gone:08x}").unlink()
    assert look(tmp_path) == [f"pack {gone} is missing"]
    report = repair(tmp_path)

    assert (report.missing, report.rebuilt) == ([gone], [])
    assert readable(tmp_path) == (DATA if gone == 2 else [])
    assert look(tmp_path) == []
    engine = reopened(tmp_path)
    assert engine.commit([(blake3(b"further").digest(), b"further")]) == ["new"]
    assert reopened(tmp_path).find(address_of(b"further")).data == b"further"


def test_missing_mark_costs_nothing(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "packs.mark").unlink()
    assert look(tmp_path) == ["packs.mark is missing or damaged"]
    repair(tmp_path)

    assert readable(tmp_path) == DATA


def test_any_damage_is_repaired_and_what_is_served_is_right(tmp_path: Path) -> None:
    dice = random.Random(6)
    for number in range(25):
        directory = tmp_path / str(number)
        fill(directory, seal=number % 2 == 0)
        pack = directory / PACK
        content = bytearray(pack.read_bytes())
        for _ in range(dice.randrange(1, 4)):
            at = dice.randrange(len(content) - 600)
            content[at : at + dice.choice([1, 40, 512])] = b"\0" * 40
        pack.write_bytes(content[: dice.randrange(300, len(content))] if number % 3 == 0 else content)
        repair(directory)

        readable(directory)
        assert read_packs(RealStorageDisk(directory))[2] == []


def test_check_names_every_damaged_object(tmp_path: Path) -> None:
    fill(tmp_path)
    make_loose(tmp_path, b"loose").write_bytes(b"other")
    entry = read_packs(RealStorageDisk(tmp_path))[1][0].entries[0]
    flip(tmp_path / PACK, entry.offset)

    assert look(tmp_path) == [
        f"pack 1: the bytes of {address_of(DATA[0])} are damaged",
        f"the file of {address_of(b'loose')} is damaged",
    ]


def test_commands_check_and_repair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects, where = tmp_path / "objects", ["--data-dir", str(tmp_path)]
    fill(objects, seal=True)
    assert cli.main(["storage", "check", *where]) == 0
    (objects / PACK).unlink()
    assert cli.main(["storage", "check", *where, "--json"]) == 1
    assert cli.main(["storage", "repair", *where, "--json"]) == 0
    assert cli.main(["storage", "repair", *where]) == 0
    printed = capsys.readouterr().out.splitlines()

    assert printed[0] == "the content store's files are sound"
    assert json.loads(printed[1]) == {"ok": False, "faults": ["pack 1 is missing"]}
    assert json.loads(printed[2])["missing"] == [1]
    assert printed[3] == "every pack can be read: there is nothing to repair"


def test_commands_refuse_a_directory_without_objects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["storage", "check", "--data-dir", str(tmp_path)]) == 1
    assert "there are no objects in" in capsys.readouterr().err
