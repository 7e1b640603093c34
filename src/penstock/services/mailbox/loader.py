"""Carries out what a shard wants to read, and hands it what was found."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from penstock.kernel.errors import NotReady, PenstockError
from penstock.kernel.log import Log
from penstock.services.mailbox.eviction import make_room
from penstock.services.mailbox.pending_reads import ReadRequest
from penstock.services.mailbox.window import FOLLOWERS_MAX, REFILL

if TYPE_CHECKING:
    from penstock.services.mailbox.shard import Shard
    from penstock.services.mailbox.state import MailboxState

P = ParamSpec("P")
R = TypeVar("R")

_WINDOW_BYTES: Final = 8 << 20
_RETRY_S: Final = 0.05


async def load(room: MailboxState, shard: Shard, wanted: ReadRequest) -> None:
    """Read for one shard; whatever happens, the shard hears that the read is over."""
    # Removals in any shard matter: heads of keys and delays are read for all of them.
    others = [each.readers for each in room.shards if each is not shard] if wanted.kind in ("keys", "due") else []
    begun = [(readers, readers.begin()) for readers in others]
    try:
        await _LOADS[wanted.kind](room, shard, wanted)
    except PenstockError as error:
        _give_up(shard, wanted)
        Log(room.inventory.service).warning("mailbox.load_failed", kind=wanted.kind, detail=error.detail)
        if wanted.topic is not None:
            room.waiters.refuse(wanted.topic, error)
        # Those who wait ask again as soon as this is over.
        await room.writer.paused(_RETRY_S)
    except BaseException:
        _give_up(shard, wanted)
        raise
    finally:
        shard.load_ended(wanted)
        for readers, generation in begun:
            readers.end(generation)
        room.look_after_all()


async def _read(room: MailboxState, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Ask the engine; when the shards were made anew meanwhile, what it says is of no use to the old ones."""
    shards = room.shards
    found = await room.ask(call, *args, **kwargs)
    if room.shards is not shards:
        raise NotReady("The shards were made anew.", phase="reopening")
    return found


async def _window(room: MailboxState, shard: Shard, wanted: ReadRequest) -> None:
    lane = wanted.lane
    assert lane is not None
    limit = _limit(room)
    rows = await _read(room, room.engine.window, lane.topic.id, lane.tail, limit, _WINDOW_BYTES)
    whole = sum(len(row.payload) for row, _ in rows) < _WINDOW_BYTES // 2
    make_room(room.shards, len(rows))
    shard.window_loaded(lane, rows, exhausted=len(rows) < limit and whole, now=room.now())
    if lane.topic.cold:
        lane.topic.cold = False


async def _key(room: MailboxState, shard: Shard, wanted: ReadRequest) -> None:
    lane = wanted.lane
    assert lane is not None
    line = lane.keys[wanted.key]
    after = line.followers[-1].seq if line.followers else line.released
    rows = await _read(room, room.engine.next_of_key, lane.topic.id, wanted.key, after, FOLLOWERS_MAX)
    make_room(room.shards, len(rows))
    shard.key_loaded(lane, wanted.key, rows, room.now())


async def _keys(room: MailboxState, _shard: Shard, wanted: ReadRequest) -> None:
    topic = wanted.topic
    assert topic is not None
    limit = _limit(room)
    heads = await _read(room, room.engine.key_heads, topic.id, topic.keys_cursor, limit)
    make_room(room.shards, len(heads))
    now = room.now()
    for row, state in heads:
        room.shard_of(row.slot).key_found(row, state, now)
    topic.keys_loading = False
    if len(heads) < limit:
        topic.keys_cursor = ""
        topic.keys_more = topic.keys_missed
    else:
        topic.keys_cursor = heads[-1][0].key or ""


async def _due(room: MailboxState, shard: Shard, _wanted: ReadRequest) -> None:
    rows, later = await _read(room, room.engine.due, room.now().wall, REFILL)
    make_room(room.shards, len(rows))
    now = room.now()
    shard.disk_due = min(shard.disk_due, math.inf if later is None else now.mono + max(0, later - now.wall))
    for row, state in rows:
        room.shard_of(row.slot).due_loaded([(row, state)], math.inf, now)


def _limit(room: MailboxState) -> int:
    """Read no more at once than a small window can take."""
    return max(1, min(REFILL, room.options.bounds.window_messages // 8))


def _give_up(shard: Shard, wanted: ReadRequest) -> None:
    """Let a later receiver ask again."""
    if wanted.kind == "window" and wanted.lane is not None:
        wanted.lane.loading, wanted.lane.more = False, True
    elif wanted.kind == "keys" and wanted.topic is not None:
        wanted.topic.keys_loading = False
    elif wanted.kind == "key" and wanted.lane is not None:
        wanted.lane.keys[wanted.key].loading = False
        wanted.lane.stalled.append(wanted.key)
    elif wanted.kind == "due":
        shard.disk_due = 0.0


_LOADS: Final = {"window": _window, "key": _key, "keys": _keys, "due": _due}
