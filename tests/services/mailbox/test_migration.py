"""A mailbox whose files were written before topics had settings is read, changed and repaired without loss.

`tests/vectors/mailbox_format1.tar.gz` was made by that earlier code: it holds plain, keyed, delayed, leased, tried and
dead messages and a claim on an idem_key.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import apsw
import pytest

from penstock.contracts import mailbox as m
from penstock.kernel.clock import LoopClock
from penstock.services.mailbox.engines.engine import Corrupt
from penstock.services.mailbox.engines.repair import look, repair
from penstock.services.mailbox.engines.sqlite import SqliteEngine
from penstock.services.mailbox.ids import OLD_SLOT_FORM, SLOT_FORM, slot_of
from tests.services.mailbox.invariants import check_all, settled
from tests.services.mailbox.worlds import mailbox_options, running

VECTOR = Path(__file__).parents[2] / "vectors" / "mailbox_format1.tar.gz"
# One second after the files were written.
AFTER = 1_700_000_001.0
CLAIM = "018bcfe5-6838-7000-8000-0000a451907a"
LEASED = m.Ack(CLAIM, "AQRRAAAAAAAAAAoAAAEAAAAAAYH3UmOT--Tw")
KEYED = m.Ack("018bcfe5-6838-7000-8000-00009bdd223f", "AQvdAAAAAAAAAAkAAAEAAAAABXaDaSvDeFtj")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with tarfile.open(VECTOR) as archive:
        # Python 3.11.2, which Debian has, does not know the filter yet.
        archive.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return tmp_path


def opened(directory: Path, wall: float = AFTER):
    engine = SqliteEngine(directory, fsync=False, wal_bytes=1 << 20)
    return running(engine, mailbox_options({"max_attempts": 2}), LoopClock(wall))


async def check_contents(mailbox) -> None:
    """See that everything is there that the earlier code stored, and settles as it promised."""
    api = mailbox.api
    counts = {each.topic: each for each in (await api.topics(m.GetTopics())).topics}
    kinds = {name: (t.ready, t.inflight, t.delayed, t.dlq) for name, t in counts.items()}
    assert kinds == {
        "claims": (0, 1, 0, 0),
        "dead": (0, 0, 0, 1),
        "delayed": (0, 0, 1, 0),
        "keyed": (5, 1, 0, 0),
        "plain": (3, 0, 0, 0),
        "tried": (1, 0, 0, 0),
    }
    repeat = await api.send(m.Send("claims", b"c", idem_key="i"))
    assert (repeat.msg_id, repeat.duplicate) == (CLAIM, True)
    for lease in (LEASED, KEYED):
        assert (await api.ack(lease)).ok
    plain = (await api.recv(m.Recv("plain", 10))).messages
    assert [each.payload for each in plain] == [b"p0", b"p1", b"p2"]
    (tried,) = (await api.recv(m.Recv("tried", 10))).messages
    assert (tried.attempt, tried.payload) == (2, b"t")
    (dead,) = (await api.dlq(m.GetDlq("dead"))).entries
    assert [end.cause for end in dead.history] == ["rejected:bad", "rejected:bad"]
    for message in (*plain, tried):
        assert (await api.ack(m.Ack(message.msg_id, message.receipt))).ok


async def test_files_of_format_1_are_read_and_nothing_is_lost(old: Path) -> None:
    async with opened(old) as mailbox:
        await check_contents(mailbox)
        await settled(mailbox)
        check_all(mailbox)


async def test_old_topic_keeps_its_slots_so_that_a_key_stays_in_one_shard(old: Path) -> None:
    async with opened(old) as mailbox:
        api = mailbox.api
        await api.send(m.Send("keyed", b"k3", key="key"))
        await api.send(m.Send("fresh", b"f", key="key"))
        order = []
        for _ in range(12):
            for got in (await api.recv(m.Recv("keyed", 10))).messages:
                order += [got.payload] if got.key == "key" else []
                await api.ack(m.Ack(got.msg_id, got.receipt))

        assert order == [b"k0", b"k1", b"k2", b"k3"]
        forms = {name: topic.form for name, topic in mailbox.state.ledger.topics.items()}
        assert (forms["keyed"], forms["fresh"]) == (OLD_SLOT_FORM, SLOT_FORM)


async def test_migrated_file_takes_settings_and_is_read_again(old: Path) -> None:
    settings = m.TopicSettings(max_attempts=9, dedup=m.DedupSettings(600, mode="first_wins"))
    async with opened(old) as mailbox:
        await mailbox.api.put_settings(m.PutSettings("plain", settings))
        await mailbox.api.send(m.Send("plain", b"new", idem_key="j", group="g", meta=b"m"))
    async with opened(old, AFTER + 1) as mailbox:
        assert (await mailbox.api.settings(m.GetSettings("plain"))).settings == settings
        assert (await mailbox.api.send(m.Send("plain", b"other", idem_key="j"))).duplicate
        # Order across groups is best effort: the first message of each is read before the rest.
        got = [each for _ in range(2) for each in (await mailbox.api.recv(m.Recv("plain", 10))).messages]
        assert sorted(each.payload for each in got) == [b"new", b"p0", b"p1", b"p2"]
        assert [(each.group, each.meta) for each in got if each.group] == [("g", b"m")]


async def test_migrated_file_is_checked_and_repaired_with_its_settings(old: Path) -> None:
    settings = m.TopicSettings(paused=True)
    async with opened(old) as mailbox:
        await mailbox.api.put_settings(m.PutSettings("empty", settings))
    assert look(old) == []
    report = repair(old)

    assert (report.messages, report.dead_letters, report.lost, report.unreadable) == (12, 1, [], 0)
    async with opened(old, AFTER + 1) as mailbox:
        assert (await mailbox.api.settings(m.GetSettings("empty"))).settings == settings
        await check_contents_but_empty(mailbox)


async def check_contents_but_empty(mailbox) -> None:
    await mailbox.api.delete_settings(m.DeleteSettings("empty"))
    await check_contents(mailbox)


async def test_file_of_format_1_that_was_never_migrated_is_repaired_into_format_2(old: Path) -> None:
    report = repair(old)
    assert (report.messages, report.dead_letters, report.lost, report.unreadable) == (12, 1, [], 0)
    async with opened(old) as mailbox:
        await check_contents(mailbox)


def test_file_of_format_1_is_checked_as_it_is(old: Path) -> None:
    assert look(old) == []
    db = apsw.Connection(str(old / "mailbox.db"))
    db.execute("UPDATE msg SET payload = x'00' WHERE seq = 1")
    db.close()

    assert look(old) == ["messages 1 to 1 do not match their checksums"]


async def test_damaged_settings_are_told_of_and_a_repair_goes_on_without_them(old: Path) -> None:
    async with opened(old) as mailbox:
        for topic in ("plain", "tried"):
            await mailbox.api.put_settings(m.PutSettings(topic, m.TopicSettings(max_attempts=9)))
        damaged = mailbox.state.ledger.topics["plain"].id
    db = apsw.Connection(str(old / "mailbox.db"))
    db.execute("UPDATE settings SET body = zeroblob(3) WHERE topic = ?", (damaged,))
    db.close()
    assert look(old) == [f"The settings of topic {damaged} are damaged."]
    engine = SqliteEngine(old, fsync=False, wal_bytes=1 << 20)
    with pytest.raises(Corrupt, match="settings"):
        engine.open(100)
    engine.close()
    report = repair(old)

    assert (report.messages, report.lost, report.unreadable) == (12, [], 1)
    async with opened(old, AFTER + 1) as mailbox:
        await mailbox.api.delete_settings(m.DeleteSettings("tried"))
        await check_contents(mailbox)


async def test_migration_is_all_or_nothing(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.services.mailbox.engines import schema

    with monkeypatch.context() as patch:
        patch.setattr(schema, "FROM_1_TO_2", (*schema.FROM_1_TO_2[:4], "this is no statement"))
        engine = SqliteEngine(old, fsync=False, wal_bytes=1 << 20)
        with pytest.raises(Exception, match="cannot be used"):
            engine.open(100)
        engine.close()
    db = apsw.Connection(str(old / "mailbox.db"), flags=apsw.SQLITE_OPEN_READONLY)
    (found,) = db.execute("SELECT v FROM meta WHERE k = 'format'").fetchall()
    db.close()

    assert found == (1,)
    async with opened(old) as mailbox:
        await check_contents(mailbox)


def test_slot_names_the_section_of_its_topic_in_its_upper_half() -> None:
    sections = {slot_of("orders", key) >> 6 for key in (None, "a", "b", "c")}

    assert sections == {slot_of("orders", None) >> 6}
    assert len({slot_of("orders", f"{n}") & 63 for n in range(500)}) == 64
    assert len({slot_of(f"t{n}", None) >> 6 for n in range(500)}) == 64
