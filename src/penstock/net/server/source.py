"""Where a streamed answer's pieces come from: taking the next one, saying that nobody wants more, closing it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.kernel.deadline import timeout
from penstock.net.server.wheel import NEVER

if TYPE_CHECKING:
    from penstock.net.message import StreamResponse

CLOSE_S: Final = 1.0


async def next_piece(stream: StreamResponse, limit_s: float) -> bytes | None:
    """Wait for the next piece, as long as one may take to make; a stream without a limit bounds its own waits."""
    if limit_s == NEVER:
        return await anext(stream.chunks, None)
    async with timeout("stream", limit_s):
        return await anext(stream.chunks, None)


def stop(stream: StreamResponse) -> None:
    """Tell a source that can be told that nobody takes its pieces any more; others notice at their next one."""
    told = getattr(stream.chunks, "stop", None)
    if told is not None:
        told()


async def close(stream: StreamResponse) -> None:
    """Have a source let go of what it holds open; one that does not in time is given up."""
    let_go = getattr(stream.chunks, "aclose", None)
    if let_go is not None:
        async with timeout("stream_close", CLOSE_S):
            await let_go()
