"""Examples that the help of each command ends with: lines to copy, most common first. Pure."""

from __future__ import annotations

from typing import Final

EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "up": (
        "penstock up",
        "penstock up --data-dir /var/lib/penstock --config penstock.toml",
        "penstock up --amnesia --ephemeral-ports --json",
        "penstock up --set omnigate.tls.cert_path=cert.pem --set omnigate.tls.key_path=key.pem",
    ),
    "serve": ("penstock serve mailbox", "penstock serve omnigate --config gateway.toml"),
    "stop": ("penstock stop", "penstock stop --data-dir /var/lib/penstock --timeout 1m"),
    "open": ("penstock open",),
    "doctor": ("penstock doctor", "penstock doctor --url https://queue.example.org:5306 --ca ca.pem --token-file t"),
    "top": ("penstock top",),
    "status": ("penstock status", "penstock status --watch", "penstock status --json"),
    "tour": ("penstock tour --self", "penstock tour"),
    "context": (
        "penstock context add prod --url https://queue.example.org:5306 --token-file prod.token --ca ca.pem --use",
        "penstock context list",
    ),
    "token": (
        "penstock token issue --for worker --subject resizer --topic images/ --store get,put --ttl 1h",
        "penstock token explain TOKEN --against 'send images/x'",
        "penstock token attenuate TOKEN --caveat svc-mailbox:topic=images/eu --seal",
        "penstock token revoke --subject-ref resizer",
    ),
    "whoami": ("penstock whoami", "penstock whoami --token-file worker.token"),
    "send": (
        "penstock send orders --data 'two pizzas' --key table-4",
        "penstock send orders --file order.json --delay 5s",
    ),
    "recv": ("penstock recv orders --ack", "penstock recv orders --follow --json"),
    "ack": ("penstock ack MSG_ID RECEIPT",),
    "nack": ("penstock nack MSG_ID RECEIPT --reason 'too hot' --delay 5s",),
    "extend": ("penstock extend MSG_ID RECEIPT --visibility 30s",),
    "peek": ("penstock peek orders", "penstock peek orders --state dlq --max 1000"),
    "purge": ("penstock purge orders --yes",),
    "topics": ("penstock topics", "penstock topics --prefix orders/"),
    "topic": ("penstock topic set orders max_attempts=10", "penstock topic show orders"),
    "dlq": (
        "penstock dlq list orders",
        "penstock dlq show orders",
        "penstock dlq redrive orders --dry-run",
        "penstock dlq delete orders --reason rejected --dry-run",
    ),
    "put": ("penstock put photo.jpg",),
    "get": ("penstock get b3:9f86d0... -o photo.jpg",),
    "route": ("penstock route add /shop http://127.0.0.1:8000", "penstock route list"),
    "webhook": ("penstock webhook list", "penstock webhook listen github --forward http://127.0.0.1:8000/hook"),
    "sqs": ("penstock sqs env", "penstock sqs key create --topic sqs/orders"),
    "dht": ("penstock dht status", "penstock dht find b3:9f86d0..."),
    "audit": ("penstock audit verify",),
    "mailbox": ("penstock mailbox check", "penstock mailbox repair"),
    "storage": ("penstock storage check", "penstock storage repair"),
    "config": (
        "penstock config show --changed",
        "penstock config show --running",
        "penstock config check penstock.toml",
        "penstock config reload",
    ),
    "inventory": ("penstock inventory",),
    "weave": ("penstock weave app.py::transfer --mode fifo",),
    "bench": ("penstock bench mailbox",),
    "completion": ("penstock completion bash",),
    "version": ("penstock version --json",),
}


def epilog(command: str) -> str | None:
    """Return the end of a command's help."""
    lines = EXAMPLES.get(command)
    return None if lines is None else "\n".join(["examples:", *(f"  {line}" for line in lines)])
