"""What the sqlite engine reads when it opens its file: the number of this life, counts, topics and claims."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from typing import Any

import apsw
import msgspec

from penstock.contracts.mailbox import TopicSettings
from penstock.services.mailbox.engines import schema
from penstock.services.mailbox.engines.engine import Corrupt, EngineContents, StoredTopic
from penstock.services.mailbox.rows import TopicRow, settings_sum

read_settings = msgspec.msgpack.Decoder(TopicSettings).decode


def fetch(db: apsw.Connection, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Run a statement to its end."""
    return db.execute(statement, values).fetchall()


def _has_tables(db: apsw.Connection) -> bool:
    return bool(fetch(db, "SELECT 1 FROM sqlite_master WHERE name = 'meta'"))


def ages(db: apsw.Connection) -> tuple[int, int]:
    """Return how many lives began on this file and how many checkpoints it went through, as far as it knows."""
    if not _has_tables(db):
        return 0, 0
    meta = dict(fetch(db, "SELECT k, v FROM meta WHERE k IN ('boot', 'checkpoints')"))
    return (meta.get("boot") or 0), (meta.get("checkpoints") or 0)


def begin_life(db: apsw.Connection) -> tuple[int, bytes]:
    """Make the tables if they are not there, and raise the boot counter durably; returns it and the receipts' key."""
    with db:
        if not _has_tables(db):
            _create(db)
        meta: dict[str, Any] = {name: value for name, value in fetch(db, "SELECT k, v FROM meta")}  # noqa: C416
        if meta.get("format") == 1:
            meta["format"] = _migrate(db)
        if meta.get("format") != schema.FORMAT:
            raise Corrupt(f"The mailbox file has format {meta.get('format')}, not {schema.FORMAT}.", where="file")
        boot: Any = meta.get("boot")
        key: Any = meta.get("key")
        if not isinstance(boot, int) or not isinstance(key, bytes):
            raise Corrupt("The mailbox file has lost its boot counter or its key.", where="file")
        db.execute("UPDATE meta SET v = ? WHERE k = 'boot'", (boot + 1,))
    return boot + 1, key


def read_counts(db: apsw.Connection) -> EngineContents:
    """Count what is there."""
    tables = ("msg", "dead", "acked")
    numbers = [fetch(db, f"SELECT max(seq) FROM {table}")[0][0] or 0 for table in tables]  # noqa: S608
    topics = list(_topics(db))
    return EngineContents(
        boot=0,
        key=b"",
        seq=max(numbers),
        topic_number=max((topic.id for topic in topics), default=0),
        topics=topics,
        claims=_claims(db),
    )


def _migrate(db: apsw.Connection) -> int:
    """Make a file of format 1 one of format 2, in the transaction that begins the life: all of it or nothing."""
    for statement in schema.FROM_1_TO_2:
        db.execute(statement)
    return schema.FORMAT


def _create(db: apsw.Connection) -> None:
    for statement in schema.TABLES:
        db.execute(statement)
    rows = {"format": schema.FORMAT, "boot": 0, "key": os.urandom(32)}
    for name, value in rows.items():
        db.execute("INSERT INTO meta VALUES (?, ?)", (name, value))


def _topics(db: apsw.Connection) -> Iterator[StoredTopic]:
    names: dict[int, TopicRow] = {}
    for number, name, total, form, generation in fetch(db, "SELECT id, name, sum, form, gen FROM topic"):
        names[number] = row = TopicRow(number, name, form, generation)
        if row.sum != total:
            raise Corrupt(f"The name of topic {number} is damaged.", where="topic")
    settings = _settings(db)
    plain, grouped, keyed, dead, delayed = (
        {row[0]: row[1:] for row in fetch(db, statement)} for statement in schema.COUNTS
    )
    unnamed = (plain.keys() | grouped.keys() | keyed.keys() | dead.keys() | settings.keys()) - names.keys()
    if unnamed:
        raise Corrupt(f"Messages belong to topics without a name: {sorted(unnamed)[:5]}.", where="topic")
    for number, row in names.items():
        some, fair, more, ended = (table.get(number, (0, 0)) for table in (plain, grouped, keyed, dead))
        yield StoredTopic(
            id=number,
            name=row.name,
            plain=some[0],
            keyed=more[0],
            bytes=some[1] + fair[1] + more[1] + ended[1],
            delayed=delayed.get(number, (0,))[0],
            dead=ended[0],
            dead_bytes=ended[1],
            grouped=fair[0],
            form=row.form,
            generation=row.generation,
            settings=settings.get(number),
        )


def check_topics(db: apsw.Connection) -> None:
    """Read every topic with its settings; raises Corrupt for one that does not match its checksum."""
    for _ in _topics(db):
        continue


def _settings(db: apsw.Connection) -> dict[int, TopicSettings]:
    found: dict[int, TopicSettings] = {}
    for number, body, total in fetch(db, "SELECT topic, body, sum FROM settings"):
        try:
            if settings_sum(number, body) != total:
                raise Corrupt(f"The settings of topic {number} are damaged.", where="topic")
            found[number] = read_settings(body)
        except (msgspec.MsgspecError, TypeError) as exc:
            raise Corrupt(f"The settings of topic {number} cannot be read: {exc}", where="topic") from exc
    return found


def _claims(db: apsw.Connection) -> array[int]:
    """Read the claims as (number, first half of the name, time): a million of them as tuples would be 200 MiB."""
    found = array("Q")
    for number, name, at in db.execute("SELECT n, name, at FROM dedup ORDER BY n"):
        found.extend((number, int.from_bytes(name[:8], "big"), at))
    return found
