"""What a caller gets back: a whole answer, or one that is read as it comes."""

from __future__ import annotations

from typing import Any, TypeVar, overload

import msgspec

from penstock.kernel.errors import DownstreamUnavailable
from penstock.net.calls.connection import ClientConnection
from penstock.wire.http1.answer import AnswerHead

T = TypeVar("T")


class AnswerTooLarge(DownstreamUnavailable):
    """The answer is larger than the caller is willing to hold."""

    # Asking again would bring the same answer.
    retryable = False


class Answer(msgspec.Struct, frozen=True):
    """A complete answer. `headers` has lower-case names and joins repeats; `fields` keeps them apart and in order."""

    status: int
    headers: dict[bytes, bytes]
    fields: tuple[tuple[bytes, bytes], ...]
    body: bytes

    @overload
    def json(self) -> Any: ...  # noqa: ANN401 - whatever the peer sent

    @overload
    def json(self, kind: type[T]) -> T: ...

    def json(self, kind: Any = Any) -> Any:
        """Decode the body, checked against `kind` when one is given."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise DownstreamUnavailable("The answer is not the JSON that was asked for.", status=502) from exc


class StreamAnswer:
    """An answer whose body is taken piece by piece: `async for piece in answer`.

    It belongs to the `async with` block that made it. The peer is held back while nobody reads.
    """

    __slots__ = ("_connection", "_here", "complete", "fields", "headers", "length", "status")

    def __init__(self, head: AnswerHead, connection: ClientConnection, body: bytes | None = None) -> None:
        """Borrow the connection until the block ends; `body` is what `read` returns, when it came with the head."""
        self.status = head.status
        self.headers = head.headers
        self.fields = head.fields
        # The declared length, when there is one.
        self.length = head.length
        # Set when the body was read to its declared end, not to where the connection was cut.
        self.complete = False
        self._connection: ClientConnection | None = connection
        self._here = body

    def __aiter__(self) -> StreamAnswer:
        """Iterate over the rest of the body."""
        return self

    async def __anext__(self) -> bytes:
        """Wait for the next piece, within the read timeout."""
        if self._connection is None:
            message = "the answer was used outside its block"
            raise RuntimeError(message)
        piece = await self._connection.chunk()
        if not piece:
            self.complete = True
            raise StopAsyncIteration
        return piece

    async def read(self, bytes_max: int) -> bytes:
        """Return the rest of the body, or refuse one larger than `bytes_max`."""
        if self.length is not None and self.length > bytes_max:
            raise AnswerTooLarge(status=502, limit="answer_bytes")
        if self._here is not None:
            return self._checked(self._here, bytes_max)
        if self._connection is not None and (body := self._connection.whole()) is not None:
            return self._checked(body, bytes_max)
        return await self._collect(bytes_max)

    def _checked(self, body: bytes, bytes_max: int) -> bytes:
        if len(body) > bytes_max:
            raise AnswerTooLarge(status=502, limit="answer_bytes")
        self.complete = True
        return body

    async def _collect(self, bytes_max: int) -> bytes:
        pieces: list[bytes] = []
        held_bytes = 0
        async for piece in self:
            held_bytes += len(piece)
            if held_bytes > bytes_max:
                raise AnswerTooLarge(status=502, limit="answer_bytes")
            pieces.append(piece)
        return b"".join(pieces)

    def detach(self) -> None:
        """Let the connection go back to its pool; nothing can be read any more."""
        self._connection = None
