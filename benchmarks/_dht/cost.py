"""What a FIND costs the node that answers it, and what svc-dht adds to a node that does nothing."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import sys
import threading
import time
from typing import Final

import uvloop

from benchmarks._dht.process import Process, running
from penstock.kernel.inventory import Inventory
from penstock.services.dht.config import DhtOptions
from penstock.services.dht.core.bucket import Bucket
from penstock.services.dht.core.contact import Contact
from penstock.services.dht.core.ids import BUCKETS, ID_BITS, bucket_of
from penstock.services.dht.core.record import RecordSigner
from penstock.services.dht.protocol.envelope import REQ, Opcode, encode_envelope
from penstock.services.dht.protocol.messages import find_request
from penstock.services.dht.service import DhtService
from penstock.services.dht.state import DhtPhase

FINDS: Final = 20_000
NEIGHBOURS: Final = 2000
PEER: Final = 1


def measure(idle_s: int) -> dict[str, float]:
    """Measure all of it."""
    without = _idle(idle_s, "--set", "node.dht=false")
    beside = _idle(idle_s)
    return {
        "find_answer_cpu_us": round(find_cpu_us(), 1),
        "idle_node_mib": round(beside["mib"], 1),
        "dht_adds_mib": round(beside["mib"] - without["mib"], 1),
        "dht_adds_core_percent": round(100 * (beside["core"] - without["core"]), 2),
    }


def _idle(seconds: int, *words: str) -> dict[str, float]:
    """Watch a node that nobody asks anything: its memory, and its share of a core."""
    command = [sys.executable, "-m", "penstock.cli", "up", "--json", "--amnesia", "--ephemeral-ports", *words]
    with running(command) as process:
        time.sleep(2)
        began, worked = time.monotonic(), _cpu_s(process)
        time.sleep(seconds)
        core = (_cpu_s(process) - worked) / (time.monotonic() - began)
        return {"core": core, "mib": _rss_mib(process)}


def _cpu_s(process: Process) -> float:
    fields = open(f"/proc/{process.pid}/stat").read().rpartition(")")[2].split()  # noqa: PTH123, SIM115 - one line
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mib(process: Process) -> float:
    pages = open(f"/proc/{process.pid}/statm").read().split()[1]  # noqa: PTH123, SIM115 - one line
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def find_cpu_us() -> float:
    """Answer FINDs of one peer over a socket; count the processor's time of the answering thread alone."""
    return uvloop.run(_answer_many())


async def _answer_many() -> float:
    service = _full_node()
    ours, theirs = socket.socketpair()
    link = service.pool.make_link(dialled=False)
    await asyncio.get_running_loop().create_connection(lambda: link, sock=ours)
    link.proven(PEER, PEER)
    asking = threading.Thread(target=_ask_many, args=(theirs,), daemon=True)
    began = time.thread_time()
    asking.start()
    while asking.is_alive():  # noqa: ASYNC110 - a thread says nothing when it ends
        await asyncio.sleep(0.01)
    return (time.thread_time() - began) / FINDS * 1e6


def _full_node() -> DhtService:
    """Make a node that does not run, with a table as in a network of thousands."""
    service = DhtService(Inventory("svc-dht"), DhtOptions(rps=0, peer_rps=0, bytes_per_s=0))
    state, rng = service.state, random.Random(1)
    state.adopt(RecordSigner(b"benchmark".ljust(32)))
    state.phase = DhtPhase.READY
    buckets = [Bucket(state.options.k) for _ in range(BUCKETS)]
    for _ in range(NEIGHBOURS):
        contact = Contact(rng.getrandbits(ID_BITS), "127.0.0.1", rng.randrange(1024, 65536))
        buckets[bucket_of(state.own, contact.id)].insert(contact, 0.0)
    for index, bucket in enumerate(buckets):
        state.table.publish(index, bucket.view())
    return service


def _ask_many(sock: socket.socket) -> None:
    rng, answers = random.Random(2), sock.makefile("rb")
    for number in range(1, FINDS + 1):
        sock.sendall(encode_envelope(Opcode.FIND_VALUE, number, REQ, find_request(rng.getrandbits(ID_BITS)), 0))
        size = int.from_bytes(answers.read(4), "big")
        answers.read(size)
