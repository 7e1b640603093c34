"""Objects in pieces for callers without asyncio: read as they come, and stored from an iterator.

The caller's iterator runs in the caller's own thread. The loop gets one piece at a time, so that a slow upload holds
the iterator back instead of filling the memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from penstock.kernel.channel import Channel, Full
from penstock.kernel.errors import Closed, Malformed
from penstock.net.calls.answer import StreamAnswer
from penstock.sdk.errors import ClientClosed
from penstock.sdk.loop_thread import LoopThread
from penstock.sdk.values import in_words

R = TypeVar("R")

# Each wait ends by the call's own deadline; this is only for a loop that does not run at all.
_PIECE_S_MAX: Final = 120.0
# A whole object: each of its pieces has a deadline, and there may be many.
STREAM_S_MAX: Final = 24 * 3600.0


class SyncStream:
    """An answer that is taken piece by piece, blocking: `for piece in stream`. It belongs to its `with` block."""

    def __init__(self, thread: LoopThread, answer: StreamAnswer) -> None:
        self._thread = thread
        self._answer = answer
        self.status, self.length = answer.status, answer.length
        self.headers, self.fields = answer.headers, answer.fields

    @property
    def complete(self) -> bool:
        """Tell whether the body was read to its declared end."""
        return self._answer.complete

    def __iter__(self) -> Iterator[bytes]:
        """Wait for each piece, within the read timeout."""
        while (piece := self._thread.call(self._next, _PIECE_S_MAX)) is not None:
            yield piece

    async def _next(self) -> bytes | None:
        return await anext(self._answer, None)

    def read(self, bytes_max: int) -> bytes:
        """Return the rest of the body, or refuse one larger than `bytes_max`."""
        return self._thread.call(lambda: self._answer.read(bytes_max), STREAM_S_MAX)


class SyncStreaming:
    """A call that is made on entering the block; leaving the block ends it."""

    def __init__(self, thread: LoopThread, streaming: AbstractAsyncContextManager[StreamAnswer]) -> None:
        self._thread = thread
        self._streaming = streaming

    def __enter__(self) -> SyncStream:
        """Make the call and wait for the answer's head."""
        return SyncStream(self._thread, self._thread.call(self._enter, _PIECE_S_MAX))

    async def _enter(self) -> StreamAnswer:
        return await self._streaming.__aenter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Give the connection back. A client that was closed meanwhile has done so already."""

        async def leave() -> None:
            await self._streaming.__aexit__(kind, error, traceback)

        with suppress(ClientClosed):
            self._thread.call(leave, _PIECE_S_MAX)


class PieceFeed:
    """The far end of an upload: an async iterator over pieces that another thread hands over."""

    def __init__(self) -> None:
        # lint: allow PK004 one piece, for as long as one call of the user lasts
        self._pieces: Channel[bytes] = Channel("upload_pieces", capacity=1, full=Full.WAIT, wait_s=_PIECE_S_MAX)

    def __aiter__(self) -> Self:
        """Iterate over what is handed over."""
        return self

    async def __anext__(self) -> bytes:
        """Wait for the next piece."""
        try:
            return await self._pieces.recv()
        except Closed:
            raise StopAsyncIteration from None

    async def hand_over(self, piece: bytes) -> None:
        """Wait until there is room for a piece; `Closed` when the upload is over."""
        await self._pieces.send(piece)

    def end(self) -> None:
        """Say that there are no more pieces, or that no more are taken; on the loop."""
        self._pieces.close()


def upload(
    thread: LoopThread,
    store: Callable[[AsyncIterator[bytes]], Coroutine[Any, Any, R]],
    pieces: Iterable[bytes],
    limit_s: float,
) -> R:
    """Have `store` store what `pieces` yields. If `pieces` raises, the upload is cut and nothing is stored."""
    _check_pieces(pieces)
    feed = PieceFeed()

    async def storing() -> R:
        try:
            return await store(feed)
        finally:
            feed.end()

    stored = thread.submit(storing)
    try:
        _hand_over_all(thread, feed, pieces)
    except BaseException:
        stored.cancel()
        raise
    return thread.result(stored, limit_s)


def _check_pieces(pieces: object) -> None:
    if not isinstance(pieces, Iterable) or isinstance(pieces, str | bytes):
        raise Malformed(f"Pieces are an iterable of bytes, such as a list of them, not {in_words(pieces)}.")


def _hand_over_all(thread: LoopThread, feed: PieceFeed, pieces: Iterable[bytes]) -> None:
    for piece in pieces:
        try:
            thread.call(lambda taken=piece: feed.hand_over(taken), _PIECE_S_MAX)  # type: ignore[misc]
        except Closed:
            return  # the upload ended before its pieces did, and its own outcome says why

    async def end() -> None:  # noqa: RUF029 - what the loop runs
        feed.end()

    thread.call(end, _PIECE_S_MAX)
