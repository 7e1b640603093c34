"""svc-passport and the capability library against peers: issue/s over HTTP, verify uncached and cached, token bytes.

    python -m benchmarks.passport [--against pyjwt,pymacaroons,biscuit] [--json] [--seconds N] [--connections N]

The service is a process of its own with a data directory on disk; so is the load. The peers are libraries, measured
in this process by the same loop as ours: the least of several rounds counts, because a neighbour only ever adds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

RESULTS = Path(__file__).parent / "results" / "passport.json"
PEERS = ("pyjwt", "pymacaroons", "biscuit")
TICKS = os.sysconf("SC_CLK_TCK")
console = Console(stderr=True)
Row = dict[str, Any]


# --- the service ----------------------------------------------------------------------------------------------------


async def serve(directory: Path) -> None:
    """Run the service until the process is ended; print its port and its operator token."""
    from penstock.config import Sources, load, node_schema
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.runtime import freeze_after_start, tune_process
    from penstock.kernel.supervisor import Supervisor
    from penstock.services.passport.config import TABLE, PassportOptions
    from penstock.services.passport.service import SERVICE, PassportService

    tune_process()
    settings = load(node_schema(TABLE), Sources(sets=("node.ephemeral_ports=true", "passport.limits.rps=0")))
    options = replace(PassportOptions.from_settings(settings), data_dir=directory)
    inventory = Inventory(SERVICE)
    service = PassportService(inventory, options)
    supervisor = Supervisor(inventory, service.children(), service.supervision())
    await supervisor.start()
    freeze_after_start()
    print(json.dumps({"port": service.listener.port, "token": service.book.operator_token}), flush=True)
    await asyncio.get_running_loop().create_future()


class Client(asyncio.Protocol):
    """One connection that asks again as soon as it was answered."""

    def __init__(self, request: bytes) -> None:
        """Ask the same each time: what is issued differs anyway."""
        self.answers = 0
        self.bad = 0
        self._request = request
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask the first time."""
        self._transport = transport
        self._transport.write(self._request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        """Count an answer once it is whole."""
        data = self._buffer + data
        end = data.find(b"\r\n\r\n")
        at = data.find(b"Content-Length: ", 0, end) + 16 if end >= 0 else -1
        if end < 0 or len(data) < end + 4 + int(data[at : data.find(b"\r\n", at)]):
            self._buffer = data
            return
        self._buffer = b""
        self.answers += 1
        self.bad += data[9:12] != b"200"
        self._transport.write(self._request)  # type: ignore[attr-defined]


async def load_it(port: int, request: bytes, connections: int, seconds: float) -> Row:
    """Warm up for half a second, then count."""
    loop = asyncio.get_running_loop()
    clients = [Client(request) for _ in range(connections)]
    for client in clients:
        await loop.create_connection(lambda c=client: c, "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.sleep(0.5)
    before, began = sum(client.answers for client in clients), loop.time()
    print("started", flush=True)
    await asyncio.sleep(seconds)
    answers, elapsed = sum(client.answers for client in clients) - before, loop.time() - began
    return {"answers": answers, "elapsed_s": elapsed, "bad": sum(client.bad for client in clients)}


def post(path: str, token: str, body: dict[str, Any]) -> bytes:
    """Write one request."""
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


def cpu_s(pid: int) -> float:
    """Return user and system seconds a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def over_http(connections: int, seconds: float) -> list[Row]:
    """Measure issue and verify on a running service."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "benchmarks.passport", "--serve", directory]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            said = json.loads(server.stdout.readline())
            issue = {"subject_ref": "bench", "audience": "svc-mailbox", "caveats": ["op=send,recv", "topic=orders/"]}
            verify = {"token": said["token"], "context": {"aud": "svc-mailbox", "op": "send"}}
            cases = {
                "issue": post("/v1/passport/issue", said["token"], issue),
                "verify, cached": post("/v1/passport/verify", said["token"], verify),
            }
            asked = {"port": said["port"], "connections": connections, "seconds": seconds}
            return [_loaded(name, server.pid, {**asked, "request": data.hex()}) for name, data in cases.items()]
        finally:
            server.terminate()
            server.wait(5)


def _loaded(name: str, pid: int, asked: Row) -> Row:
    command = [sys.executable, "-m", "benchmarks.passport", "--load", json.dumps(asked)]
    load = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert load.stdout is not None
    load.stdout.readline()
    before = cpu_s(pid)
    counted = json.loads(load.stdout.readline())
    used = cpu_s(pid) - before
    load.wait(5)
    return {
        "case": name,
        "connections": asked["connections"],
        "per_s": round(counted["answers"] / counted["elapsed_s"]),
        "cpu_us": round(used / max(1, counted["answers"]) * 1e6, 1),
        "bad": counted["bad"],
    }


# --- the libraries --------------------------------------------------------------------------------------------------


def least_us(call: Callable[[], object], number: int) -> float:
    """Return the microseconds of one call, in the least disturbed of seven rounds."""
    return round(min(timeit.repeat(call, number=number, repeat=7)) / number * 1e6, 2)


def ours() -> Row:
    """Measure the library of every service."""
    from penstock.capability import ed25519
    from penstock.capability.caveats import parse_all
    from penstock.capability.making import attenuate, mint
    from penstock.capability.token import TokenRoot
    from penstock.capability.trust import KeyRecord, Trust
    from penstock.capability.verifier import CapabilityVerifier
    from penstock.contracts.capability import RequestContext
    from penstock.kernel.clock import SYSTEM

    public, secret = ed25519.expand(os.urandom(32))
    now = int(SYSTEM.wall())
    root = TokenRoot(
        alg="ed25519", kid="k1", epoch=0, iss="penstock", aud=("svc-mailbox",), sub="bench", tenant="acme",
        class_="authed", via=(),
        iat=now, nbf=now, exp=now + 900, tid=os.urandom(16), caveats=parse_all(["op=send,recv", "topic=orders/"]),
        epk=b"",
    )  # fmt: skip

    def issue() -> str:
        return mint(root, lambda message: ed25519.sign_with(secret, message))

    trust = Trust(keys=MappingProxyType({"k1": KeyRecord("k1", "ed25519", public, b"", 0, now + 10**6)}))
    verifier = CapabilityVerifier(trust, SYSTEM)
    context = RequestContext(aud="svc-mailbox", op="send", topic="orders/eu")
    token = issue()
    child = attenuate(token, parse_all(["op=send"]))

    def uncached(text: str) -> object:
        verifier.forget()
        verifier._prefixes.clear()
        return verifier.verify(text, context)

    return {
        "library": "penstock",
        "issue_us": least_us(issue, 300),
        "verify_us": least_us(lambda: uncached(token), 300),
        "attenuated_us": least_us(lambda: uncached(child), 300),
        "cached_us": least_us(lambda: verifier.verify(token, context), 20_000),
        "token_bytes": len(token),
        "narrowing": "offline, public keys",
    }


def pyjwt() -> Row:
    """Measure an EdDSA JWT with the same claims: no narrowing, no cache."""
    import jwt
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    public = key.public_key()
    now = int(time.time())
    claims = {
        "iss": "penstock", "aud": "svc-mailbox", "sub": "bench", "tenant": "acme", "iat": now, "nbf": now,
        "exp": now + 900,
        "jti": os.urandom(16).hex(), "caveats": ["op=send,recv", "topic=orders/"],
    }  # fmt: skip
    token = jwt.encode(claims, key, algorithm="EdDSA")
    verify = lambda: jwt.decode(token, public, algorithms=["EdDSA"], audience="svc-mailbox")  # noqa: E731
    return {
        "library": "pyjwt",
        "issue_us": least_us(lambda: jwt.encode(claims, key, algorithm="EdDSA"), 300),
        "verify_us": least_us(verify, 300),
        "attenuated_us": None,
        "cached_us": None,
        "token_bytes": len(token),
        "narrowing": "none",
    }


def pymacaroons() -> Row:
    """Measure a macaroon with the same caveats: a shared secret, so every verifier can mint."""
    from pymacaroons import Macaroon, Verifier

    caveats = ["aud = svc-mailbox", "op = send,recv", "topic = orders/", "exp = 1"]

    def issue() -> str:
        macaroon = Macaroon(location="penstock", identifier="k1", key="secret")
        for caveat in caveats:
            macaroon.add_first_party_caveat(caveat)
        return str(macaroon.serialize())

    def verify(text: str) -> object:
        verifier = Verifier()
        verifier.satisfy_general(lambda _caveat: True)
        return verifier.verify(Macaroon.deserialize(text), "secret")

    token = issue()
    child = Macaroon.deserialize(token)
    child.add_first_party_caveat("op = send")
    narrowed = child.serialize()
    return {
        "library": "pymacaroons",
        "issue_us": least_us(issue, 300),
        "verify_us": least_us(lambda: verify(token), 300),
        "attenuated_us": least_us(lambda: verify(narrowed), 300),
        "cached_us": None,
        "token_bytes": len(token),
        "narrowing": "offline, shared secret",
    }


def biscuit() -> Row:
    """Measure a biscuit with the same facts: the nearest relative, in Rust."""
    import biscuit_auth as b

    pair = b.KeyPair()

    def issue() -> str:
        builder = b.BiscuitBuilder('user("bench"); tenant("acme"); check if op($o), ["send","recv"].contains($o);')
        return str(builder.build(pair.private_key).to_base64())

    def verify(text: str) -> object:
        token = b.Biscuit.from_base64(text, pair.public_key)
        return b.AuthorizerBuilder('op("send"); allow if user($u);').build(token).authorize()

    token = issue()
    narrowed = b.Biscuit.from_base64(token, pair.public_key).append(b.BlockBuilder('check if op("send");')).to_base64()
    return {
        "library": "biscuit",
        "issue_us": least_us(issue, 200),
        "verify_us": least_us(lambda: verify(token), 200),
        "attenuated_us": least_us(lambda: verify(narrowed), 200),
        "cached_us": None,
        "token_bytes": len(token),
        "narrowing": "offline, public keys",
    }


def libraries(peers: list[str]) -> list[Row]:
    """Measure ours and every peer that is installed; one that is not is said and left out."""
    measures: dict[str, Callable[[], Row]] = {"pyjwt": pyjwt, "pymacaroons": pymacaroons, "biscuit": biscuit}
    rows = [ours()]
    for peer in track(peers, "peers", console=console):
        try:
            rows.append(measures[peer]())
        except ImportError:
            console.print(f"{peer} is not installed: left out")
    return rows


def table(title: str, rows: list[Row]) -> None:
    """Print rows as a table."""
    drawn = Table(title=title, title_justify="left")
    for column in rows[0]:
        drawn.add_column(column)
    for row in rows:
        drawn.add_row(*("-" if value is None else str(value) for value in row.values()))
    console.print(drawn)


def main() -> int:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", default=",".join(PEERS), help="peers, separated by commas")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--load", help=argparse.SUPPRESS)
    args = parser.parse_args()
    import uvloop

    if args.serve:
        uvloop.run(serve(args.serve))
    if args.load:
        asked = json.loads(args.load)
        found = uvloop.run(
            load_it(asked["port"], bytes.fromhex(asked["request"]), asked["connections"], asked["seconds"])
        )
        print(json.dumps(found), flush=True)
        return 0
    peers = [name for name in args.against.split(",") if name in PEERS]
    result = {"service": over_http(args.connections, args.seconds), "libraries": libraries(peers)}
    table("svc-passport over HTTP, one process", result["service"])
    table("libraries, microseconds", result["libraries"])
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if args.json:
        print(json.dumps(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
