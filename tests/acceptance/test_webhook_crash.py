"""A node is killed at any moment while a webhook is under way, and the provider tries again: exactly one message."""

from __future__ import annotations

import base64
import http.client
import json
import os
import random
import threading
from pathlib import Path

from penstock.kernel.clock import SYSTEM
from tests.acceptance.node_process import NodeProcess
from tests.services.interop.senders import SENDERS

CYCLES = int(os.environ.get("PENSTOCK_KILL_CYCLES") or (200 if os.environ.get("PENSTOCK_TEST_FULL") else 4))
SETTINGS = (
    "--set",
    "interop.providers.stripe.secrets=env:HOOK_SECRET",
    "--set",
    "node.omnigate=false",
)
ENV = {**os.environ, "HOOK_SECRET": SENDERS["stripe"].secret}


def _deliver(node: NodeProcess, number: int) -> dict[str, object] | None:
    """Send an event as its provider does, signed for this very try; None when no answer came."""
    body = json.dumps({"id": f"evt_{number}", "type": "made", "pending_webhooks": random.randrange(9)}).encode()
    sent = SENDERS["stripe"].send(body, now=int(SYSTEM.wall()))
    connection = node.connect("interop")
    try:
        connection.request(
            "POST", "/webhooks/stripe", body, {name.decode(): value.decode() for name, value in sent.fields}
        )
        answer = connection.getresponse()
        said = json.loads(answer.read())
        return said if answer.status == 202 else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


def _killed_while_delivering(node: NodeProcess, number: int, moment_s: float) -> dict[str, object] | None:
    """Deliver, and kill the node a moment after the request left."""
    found: list[dict[str, object] | None] = []
    provider = threading.Thread(target=lambda: found.append(_deliver(node, number)))
    provider.start()
    killer = threading.Timer(moment_s, node.process.kill)
    killer.start()
    provider.join()
    killer.join()
    node.process.wait()
    return found[0]


def _until_accepted(node: NodeProcess, number: int) -> dict[str, object]:
    """Try again as a provider does."""
    for _ in range(600):
        said = _deliver(node, number)
        if said is not None:
            return said
        threading.Event().wait(0.05)
    raise AssertionError(f"evt_{number} was never accepted")


def _span_s(node: NodeProcess, number: int) -> float:
    """Deliver once so that the bridge has its authority, and once more to see how long a delivery takes now."""
    _until_accepted(node, 100_000 + number)
    began = SYSTEM.monotonic()
    _until_accepted(node, 100_000 + number)
    return SYSTEM.monotonic() - began


def test_killed_node_and_the_providers_retry_make_one_message(tmp_path: Path) -> None:
    moments, ledger = random.Random(os.environ.get("PENSTOCK_KILL_SEED", "7")), {}
    for number in range(CYCLES):
        with NodeProcess(*SETTINGS, data_dir=tmp_path / "data", env=ENV) as node:
            # The moments fall anywhere between the arrival of the request and a little after its answer.
            span_s = _span_s(node, number)
            before = _killed_while_delivering(node, number, moments.uniform(0.0, 1.2 * span_s))
            ledger[number] = before["msg_id"] if before is not None else None
    with NodeProcess(*SETTINGS, data_dir=tmp_path / "data", env=ENV) as node:
        retried = {number: _until_accepted(node, number) for number in range(CYCLES)}
        stored = _stored(node)
    after = {number: said["msg_id"] for number, said in retried.items()}
    answered = {number: msg_id for number, msg_id in ledger.items() if msg_id is not None}
    kept = [number for number, said in retried.items() if said["duplicate"] and number not in answered]
    print(  # noqa: T201 - the ledger, for who runs many cycles with `-s`
        f"\n{CYCLES} kills: {len(answered)} after the answer, {len(kept)} between commit and answer,"
        f" {CYCLES - len(answered) - len(kept)} before the commit;"
        f" {sum(stored.count(f'evt_{number}') == 1 for number in range(CYCLES))} of {CYCLES} events are one message"
    )

    # What was answered with 202 before the kill is the message that the retry finds.
    assert answered.items() <= after.items()
    assert sorted(stored) == sorted(
        [f"evt_{number}" for number in range(CYCLES)] + [f"evt_{100_000 + n}" for n in range(CYCLES)]
    )


def _stored(node: NodeProcess) -> list[str]:
    """Take every event out of the topic, and name it by its id."""
    found: list[str] = []
    while True:
        answer = node.ask(
            "mailbox",
            "POST",
            "/v1/recv",
            {"topic": "webhooks/stripe", "max_messages": 256, "visibility_ms": 600_000},
            token=True,
        )
        messages = answer.json()["messages"]
        if not messages:
            return found
        found += [json.loads(base64.b64decode(message["payload_b64"]))["id"] for message in messages]


def test_kill_at_once_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    with NodeProcess(*SETTINGS, data_dir=tmp_path / "data", env=ENV) as node:
        first = _until_accepted(node, 1)
        node.process.kill()
        node.process.wait()
    with NodeProcess(*SETTINGS, data_dir=tmp_path / "data", env=ENV) as node:
        again = _until_accepted(node, 1)

    assert (again["msg_id"], again["duplicate"]) == (first["msg_id"], True)
