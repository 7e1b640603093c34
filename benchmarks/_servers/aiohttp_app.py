"""aiohttp: the same JSON route."""

from __future__ import annotations

import sys

import uvloop
from aiohttp import web


async def echo(request: web.Request) -> web.Response:
    """Answer what was asked."""
    ask = await request.json()
    return web.json_response({"text": ask["text"], "n": ask["n"] + 1, "length": len(ask["text"])})


if __name__ == "__main__":
    uvloop.install()
    app = web.Application()
    app.router.add_post("/echo", echo)
    print(sys.argv[1], flush=True)
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)
