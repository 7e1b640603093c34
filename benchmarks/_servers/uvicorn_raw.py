"""uvicorn with a bare ASGI callable: the same JSON route, nothing above it."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import uvicorn


class Ask(msgspec.Struct, forbid_unknown_fields=True):
    """What the route takes."""

    text: str
    n: int


decode = msgspec.json.Decoder(Ask).decode
encode = msgspec.json.Encoder().encode


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer what was asked."""
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    ask = decode(body)
    out = encode({"text": ask.text, "n": ask.n + 1, "length": len(ask.text)})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(out))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": out})


if __name__ == "__main__":
    print(sys.argv[1], flush=True)
    uvicorn.run(app, port=int(sys.argv[1]), http="httptools", loop="uvloop", log_level="error", access_log=False)
