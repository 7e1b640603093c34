"""The engine is closed on the writer's thread while another thread still reads: both come to an end."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.services.mailbox.engines.engine import EngineFailed
from tests.services.mailbox.worlds import make_engine

# Long enough to be under way for certain when the engine is closed; the close interrupts it.
COUNT = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000) SELECT max(i) FROM n"


class Reading:
    """One long statement on a thread of its own."""

    def __init__(self, engine) -> None:
        self.error: BaseException | None = None
        self._reads = engine.reads
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def begin(self) -> None:
        """Start it, and return once SQLite is at work on it."""
        self._reads.format()
        self._reads._reader.set_progress_handler(self._progress, 1000)
        self._thread.start()
        assert self._begun.wait(30)

    def _progress(self) -> bool:
        self._begun.set()
        return False

    def _read(self) -> None:
        try:
            self._reads._ask(COUNT)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.error = error

    def join(self) -> None:
        """Wait until the statement has ended."""
        self._thread.join(30)
        assert not self._thread.is_alive()


def test_close_interrupts_a_read_and_leaves_the_files_in_good_order(tmp_path: Path) -> None:
    engine = make_engine("sqlite", tmp_path)
    engine.open(100)
    reading = Reading(engine)
    reading.begin()
    engine.close()
    reading.join()

    assert isinstance(reading.error, EngineFailed)
    assert not (tmp_path / "mailbox.db-wal").exists()
    assert engine.open(100).damage == ""
    assert engine.reads.format() == 2
    engine.close()


def test_read_after_a_close_is_refused_and_makes_no_log(tmp_path: Path) -> None:
    engine = make_engine("sqlite", tmp_path)
    engine.open(100)
    engine.close()
    before = sorted(path.name for path in tmp_path.iterdir())

    with pytest.raises(EngineFailed, match="not open"):
        engine.reads.format()
    assert sorted(path.name for path in tmp_path.iterdir()) == before
