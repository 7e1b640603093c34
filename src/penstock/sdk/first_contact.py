"""Whether a node that never answered is worth waiting for: a wrong address, certificate or scheme does not mend itself.

Nothing that listens yet will listen soon, and what hangs up at once may be a proxy whose node still starts. But a
certificate that is not trusted, an answer that no node gives, and TLS where `http://` was written stay as they are.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from penstock.kernel.deadline import no_deadline, timeout
from penstock.kernel.errors import DownstreamUnavailable, PenstockError, Timeout
from penstock.net.calls.origin import parse_url

_LOOK_S: Final = 2.0
_HUNG_UP: Final = "The connection ended before the answer's head did."
# TLS was begun and cut: so does a proxy whose node is not there yet.
_CUT: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
# What a gateway that is no penstock says while the node behind it is away.
_NODE_AWAY: Final = tuple(f"its answer {status} carries" for status in (502, 503, 504))


def says_wrong_place(error: PenstockError) -> bool:
    """Tell whether this failure will be the same tomorrow, if no call ever had an answer."""
    if not isinstance(error, DownstreamUnavailable):
        return False
    if isinstance(error.__cause__, ssl.SSLError):
        return not isinstance(error.__cause__, _CUT)
    if "not a penstock node" in error.detail:
        return not any(words in error.detail for words in _NODE_AWAY)
    return "is not HTTP/1" in error.detail


def may_be_tls(error: PenstockError, url: str) -> bool:
    """Tell whether the port hung up as one does that wants TLS."""
    return url.startswith("http:") and error.detail == _HUNG_UP


async def speaks_tls(url: str) -> bool:
    """Begin TLS with a port, and tell whether it does. Nothing is sent, so no certificate has to be trusted."""
    origin, _ = parse_url(url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with no_deadline():
            async with timeout("look_for_tls", _LOOK_S):
                _, writer = await asyncio.open_connection(origin.host, origin.port, ssl=context)
    except (OSError, Timeout):
        return False
    writer.transport.abort()
    return True
