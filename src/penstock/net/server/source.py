"""The source of a streamed answer: taking its next piece, telling it to stop, closing it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.kernel.deadline import timeout
from penstock.net.server.wheel import NEVER

if TYPE_CHECKING:
    from penstock.net.message import StreamResponse

CLOSE_S: Final = 1.0


async def next_piece(stream: StreamResponse, limit_s: float) -> bytes | None:
    """Wait for the next piece, at most `limit_s`; a stream without a limit has to bound its waits itself."""
    if limit_s == NEVER:
        return await anext(stream.chunks, None)
    async with timeout("stream", limit_s):
        return await anext(stream.chunks, None)


def stop(stream: StreamResponse) -> None:
    """Tell a source that nobody takes its pieces any more; one without `stop` notices at its next piece."""
    told = getattr(stream.chunks, "stop", None)
    if told is not None:
        told()


async def close(stream: StreamResponse) -> None:
    """Close a source, within `CLOSE_S`; one that takes longer is given up."""
    let_go = getattr(stream.chunks, "aclose", None)
    if let_go is not None:
        async with timeout("stream_close", CLOSE_S):
            await let_go()
