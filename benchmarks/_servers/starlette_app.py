"""Starlette on uvicorn: the same JSON route."""

from __future__ import annotations

import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


async def echo(request: Request) -> JSONResponse:
    """Answer what was asked."""
    ask = await request.json()
    return JSONResponse({"text": ask["text"], "n": ask["n"] + 1, "length": len(ask["text"])})


app = Starlette(routes=[Route("/echo", echo, methods=["POST"])])

if __name__ == "__main__":
    print(sys.argv[1], flush=True)
    uvicorn.run(app, port=int(sys.argv[1]), http="httptools", loop="uvloop", log_level="error", access_log=False)
