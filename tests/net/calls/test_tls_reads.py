"""Large bodies over TLS on the standard loop, whose TLS layer fills slices of the buffer it was lent."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from penstock.kernel.inventory import Inventory
from penstock.net.calls.client import ClientOptions, HttpClient
from penstock.net.message import Request, Response
from penstock.net.server.listener import Listener, ListenerOptions
from penstock.net.server.route import Route
from tests.net.server.certificates import make_certificate

DATA = b"".join(b"%015d\n" % n for n in range(1 << 15))


async def echo(request: Request) -> Response:
    return Response(200, request.body, b"application/octet-stream")


@pytest.mark.real_loop
async def test_what_comes_over_tls_is_what_was_sent(tmp_path: Path) -> None:
    """Both ends read into shared buffers: a slice of a bytearray is a copy, and what lands there is lost."""
    certificate = make_certificate(tmp_path)
    options = ListenerOptions(host="127.0.0.1", port=0, body_bytes_max=1 << 20, **certificate)
    listener = Listener(Inventory("svc"), options, [Route(method="POST", path="/", handler=echo, open=True)])
    context = ssl.create_default_context(cafile=certificate["tls_cert_path"])
    await listener.start()
    client = HttpClient(Inventory("client"), ClientOptions(service="svc", tls=context))
    try:
        answer = await client.request("POST", f"https://localhost:{listener.port}/", body=DATA)
    finally:
        await client.close()
        await listener.close()

    assert (answer.status, answer.body == DATA) == (200, True)
