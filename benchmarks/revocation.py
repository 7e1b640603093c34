"""How long a revoked token goes on working, by the way it is used.

    python -m benchmarks.revocation [--times N] [--json]

One node, one upstream behind its gateway, and two mailboxes in processes of their own: one follows the issuer over
HTTP, one reads its published file. On each way a token is used, revoked, and used again at once, and again every few
milliseconds until it is refused; a long poll or a stream that is open when its token is revoked is watched until it
ends. Two times are told: from the answer to the revocation to the first refusal, and from the asking for it, which
counts the disk that a revocation waits for.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.acceptance.node_process import NodeProcess
from tests.acceptance.upstream_process import Upstream

RESULTS = Path(__file__).parent / "results" / "revocation.json"
PAUSE_S = 0.005
GIVE_UP_S = 30.0
# How long a request is open before its token is revoked: whatever looks in turns is met at every point of its turn.
OPEN_S = (0.05, 1.05)
console = Console(stderr=True)
Row = dict[str, Any]


class Door:
    """A kept connection to one listener."""

    def __init__(self, node: NodeProcess, service: str) -> None:
        """Connect."""
        self._connection = node.connect(service)

    def ask(self, method: str, path: str, body: object = None, **fields: str) -> tuple[int, dict[str, str], bytes]:
        """Ask and read the answer whole."""
        data = b"" if body is None else json.dumps(body).encode()
        headers = {name.replace("_", "-"): value for name, value in fields.items()}
        try:
            self._connection.request(method, path, data, headers)
            answer = self._connection.getresponse()
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            # The listener closes what it refused; the next try opens another.
            self._connection.close()
            self._connection.request(method, path, data, headers)
            answer = self._connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


def bearer(token: str) -> dict[str, str]:
    """Make the field that carries a token."""
    return {"Authorization": f"Bearer {token}"}


@dataclass
class Site:
    """Everything that runs."""

    node: NodeProcess
    upstream: Upstream
    by_url: NodeProcess
    by_file: NodeProcess
    data_dir: Path
    doors: dict[tuple[int, str], Door] = field(default_factory=dict)

    def door(self, node: NodeProcess, service: str) -> Door:
        """Return the kept connection to a listener."""
        key = (id(node), service)
        if key not in self.doors:
            self.doors[key] = Door(node, service)
        return self.doors[key]

    @property
    def operator(self) -> str:
        """Read the operator's token, which a revocation may have replaced."""
        return (self.data_dir / "operator.token").read_text().strip()

    def passport(self, path: str, body: object, token: str | None = None) -> Row:
        """Ask svc-passport; the operator asks unless somebody else does."""
        asked = bearer(self.operator if token is None else token)
        status, _, answer = self.door(self.node, "passport").ask("POST", f"/v1/passport/{path}", body, **asked)
        if status != 200:
            raise RuntimeError(f"{path}: {status} {answer!r}")
        return dict(json.loads(answer))

    def issue(self, *caveats: str, by: str | None = None, **fields: object) -> str:
        """Mint a token."""
        asked = {
            "subject_ref": "ada",
            "audience": ["omnigate", "svc-mailbox", "svc-passport"],
            "caveats": list(caveats),
            **fields,
        }
        return str(self.passport("issue", asked, by)["token"])

    def tid(self, token: str) -> str:
        """Ask for the id of a token."""
        return str(self.passport("verify", {"token": token})["claims"]["tid"])


@contextmanager
def running(folder: Path) -> Iterator[Site]:
    """Start all of it."""
    with ExitStack() as stack:
        upstream = stack.enter_context(Upstream())
        config = folder / "penstock.toml"
        config.write_text(
            f"""[omnigate.quotas]
default_rps = 0
per_ip_rps = 0
per_cap_rps = 0
[[omnigate.routes]]
prefix = "/narrow"
upstream = ["{upstream.url}"]
require = ["op=send"]
forward = "token"
""",
            encoding="ascii",
        )
        data_dir = folder / "data"
        node = stack.enter_context(NodeProcess("--config", str(config), data_dir=data_dir))
        issuer = f"http://127.0.0.1:{node.port('passport')}"
        by_url = stack.enter_context(
            NodeProcess("--set", f"capability.issuer={issuer}", data_dir=folder / "a", command=("serve", "mailbox"))
        )
        published = data_dir / "passport" / "public.json"
        by_file = stack.enter_context(
            NodeProcess("--set", f"capability.issuer={published}", data_dir=folder / "b", command=("serve", "mailbox"))
        )
        yield Site(node, upstream, by_url, by_file, data_dir)


# --- the ways: each returns what is tried, and what ends it ---

Try = Callable[[], int]
End = Callable[[], object]
Way = Callable[["Site"], tuple[Try, End]]


def _sends(site: Site, node: NodeProcess, token: str, service: str = "mailbox", path: str = "/v1/send") -> Try:
    door, body = site.door(node, service), {"topic": "orders", "payload_b64": "eA=="}
    return lambda: door.ask("POST", path, body, **bearer(token))[0]


def new_request(site: Site) -> tuple[Try, End]:
    """Send to the mailbox of the same node."""
    token = site.issue("op=send")
    tid = site.tid(token)
    return _sends(site, site.node, token), lambda: site.passport("revoke", {"tid": tid})


def gateway(site: Site) -> tuple[Try, End]:
    """Send to the mailbox through the gateway."""
    token = site.issue("op=send")
    tid, door = site.tid(token), site.door(site.node, "omnigate")

    def attempt() -> int:
        return door.ask("POST", "/v1/mailbox/orders", {"x": 1}, **bearer(token))[0]

    return attempt, lambda: site.passport("revoke", {"tid": tid})


def forwarded(site: Site) -> tuple[Try, End]:
    """Ask the issuer, as an upstream does, about a token that the gateway narrowed for it."""
    token = site.issue("op=send")
    tid, door = site.tid(token), site.door(site.node, "omnigate")
    site.upstream.seen.clear()
    status, _, answer = door.ask("POST", "/narrow/x", {}, X_Deadline_Ms="60000", **bearer(token))
    if status != 200:
        raise RuntimeError(f"the upstream was not asked: {status} {answer!r}")
    seen = {name.lower(): value for name, value in site.upstream.seen[0]["headers"].items()}
    narrow = seen["authorization"].removeprefix("Bearer ")
    context = {"aud": "route:/narrow", "op": "send", "method": "POST", "route": "/narrow/x"}

    def attempt() -> int:
        verdict = site.passport("verify", {"token": narrow, "context": context})
        return 200 if verdict["ok"] else 401

    return attempt, lambda: site.passport("revoke", {"tid": tid})


def child_token(site: Site) -> tuple[Try, End]:
    """Send with a token that was issued with another, and revoke the subject of that."""
    boss = f"boss-{time.monotonic_ns()}"
    held = site.issue("op=issue,send", subject_ref=boss, tenant="acme")
    child = site.issue("op=send", by=held, tenant="acme", ttl_s=60)
    return _sends(site, site.node, child), lambda: site.passport("revoke", {"subject_ref": boss})


def admin_session(site: Site) -> tuple[Try, End]:
    """Use a session of the operator's page, and revoke the operator's token by force."""
    door, operator = site.door(site.node, "admin"), site.operator
    status, headers, answer = door.ask("POST", "/login", {"token": operator})
    if status >= 300:
        raise RuntimeError(f"nobody was signed in: {status} {answer!r}")
    cookie = headers["set-cookie"].partition(";")[0]
    tid = site.tid(operator)
    return lambda: door.ask("GET", "/status", Cookie=cookie)[0], lambda: site.passport(
        "revoke", {"tid": tid, "force": True}
    )


def other_process_by_url(site: Site) -> tuple[Try, End]:
    """Send to a mailbox in another process that follows the issuer over HTTP."""
    token = site.issue("op=send")
    tid = site.tid(token)
    return _sends(site, site.by_url, token), lambda: site.passport("revoke", {"tid": tid})


def other_process_by_file(site: Site) -> tuple[Try, End]:
    """Send to a mailbox in another process that reads the published file."""
    token = site.issue("op=send")
    tid = site.tid(token)
    return _sends(site, site.by_file, token), lambda: site.passport("revoke", {"tid": tid})


WAYS: dict[str, Way] = {
    "new request": new_request,
    "gateway": gateway,
    "forwarded": forwarded,
    "child token": child_token,
    "admin session": admin_session,
    "other process, by URL": other_process_by_url,
    "other process, by file": other_process_by_file,
}


# --- what is open while its token is revoked: service, path and body ---

WAITING: dict[str, tuple[str, str, Row]] = {
    "long poll": ("mailbox", "/v1/recv", {"topic": "silent", "wait_ms": 20_000}),
    "long poll, gateway": ("omnigate", "/v1/recv", {"topic": "silent", "wait_ms": 20_000}),
    "stream": ("mailbox", "/v1/recv/stream", {"topic": "silent"}),
    "stream, gateway": ("omnigate", "/v1/recv/stream", {"topic": "silent"}),
}


def waited(site: Site, pool: ThreadPoolExecutor, service: str, path: str, body: Row) -> tuple[float, float]:
    """Leave a request open, revoke its token, and return how long it stayed open, as `measured` does."""
    token = site.issue("op=recv")
    tid, connection = site.tid(token), site.node.connect(service)
    connection.request("POST", path, json.dumps(body), {**bearer(token), "X-Deadline-Ms": "30000"})
    ending = pool.submit(_ending, connection)
    time.sleep(random.uniform(*OPEN_S))
    if ending.done():
        raise RuntimeError(f"{path} ended before its token was revoked: {ending.result()}")
    revoking = time.perf_counter()
    site.passport("revoke", {"tid": tid})
    began = time.perf_counter()
    text, ended = ending.result(GIVE_UP_S)
    connection.close()
    if "revoked" not in text:
        raise RuntimeError(f"{path} ended otherwise: {text}")
    return max(0.0, (ended - began) * 1000), (ended - revoking) * 1000


def _ending(connection: http.client.HTTPConnection) -> tuple[str, float]:
    text = connection.getresponse().read().decode()
    return text, time.perf_counter()


def measured(site: Site, way: Way) -> tuple[float, float]:
    """Use a token, revoke it, and return how long it went on working: after the answer and after the asking, in ms."""
    attempt, end = way(site)
    if attempt() >= 400:
        raise RuntimeError("it was refused before it was revoked")
    revoking = time.perf_counter()
    end()
    began = time.perf_counter()
    while True:
        asked_at = time.perf_counter()
        status = attempt()
        if status == 401:
            # It was refused when it was asked, not when the answer came.
            return (asked_at - began) * 1000, (asked_at - revoking) * 1000
        if asked_at - began > GIVE_UP_S:
            raise RuntimeError(f"it still works after {GIVE_UP_S:g} s: {status}")
        time.sleep(PAUSE_S)


def percentile(values: list[float], part: float) -> float:
    """Return a percentile by nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


FIGURES = ("p50 answered", "p99 answered", "max answered", "p50 asked", "p99 asked", "max asked")


def figures(times: list[tuple[float, float]]) -> dict[str, float]:
    """Sum both times up."""
    found: list[float] = []
    for place in (0, 1):
        values = [each[place] for each in times]
        found += [round(each, 1) for each in (percentile(values, 0.5), percentile(values, 0.99), max(values))]
    return dict(zip(FIGURES, found, strict=True))


def main() -> int:
    """Measure every way and show the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=50, help="measurements a way")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as site, ThreadPoolExecutor(1) as pool:
        tries: dict[str, Callable[[], tuple[float, float]]] = {
            **{name: partial(measured, site, way) for name, way in WAYS.items()},
            **{name: partial(waited, site, pool, *what) for name, what in WAITING.items()},
        }
        for name, attempt in tries.items():
            times = [attempt() for _ in range(options.times)]
            rows.append({"way": name, "times": len(times), **figures(times)})
    table = Table("way", "times", *FIGURES, title="from a revocation to the first refusal, ms")
    for row in rows:
        table.add_row(*map(str, row.values()))
    console.print(table)
    RESULTS.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
    if options.json:
        sys.stdout.write(json.dumps(rows) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
