"""Penstock: supervised services on one small runtime.

Every queue is bounded and says what happens when it is full; every wait has a deadline; every task has a parent; every
shutdown drains. Each package below imports only packages that are listed under it:

    cli                          one module per command; parses, calls, prints
    node                         builds the services and hangs them under one root supervisor
    services, admin              the services, strangers to each other; dashboard and operator pages
    transports                   task frameworks on the mailbox: Celery, Dramatiq
    client, sdk                  the Python SDK: its public name, and its code
    rpc                          contracts over the network: how services reach each other
    net                          sockets: HTTP listener and client, frame endpoint, TLS
    contracts, wire, capability  what services may ask of each other; bytes to values and back; tokens
    config                       the one schema, loading, precedence, reload
    kernel                       the runtime; standard library only

Beside these stand ``testing`` (the shipped test kit), ``weave`` (every schedule of small programs, on the test kit) and
``lint`` (the concurrency rules); nothing that runs in production imports them. ``__main__`` is the command as a shell
starts it.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - who starts it with an older one is told so, not shown an ImportError
    raise SystemExit(
        "penstock: Python 3.11 or newer is needed, and this is "
        + ".".join(map(str, sys.version_info[:3]))
        + ". Install a newer Python, or run it with uvx: uvx penstock up."
    )

__version__ = "0.2.0"
