"""Every alert can fire: a real node is brought into trouble, and promtool judges the rules on its series."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from penstock.testing.waiting import wait_until
from tests.acceptance.node_process import NodeProcess, free_port
from tests.acceptance.test_damaged_mailbox import flip_a_bit
from tests.acceptance.upstream_process import Upstream
from tests.packaging.test_watching import ALERTS, metrics_of
from tests.packaging.test_watching import ask as ask_prometheus

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool here (on Debian: apt-get install prometheus)"
)
Page = dict[str, float]
STEP_S = 10
# Scrapes before the trouble, and with it.
BEFORE, DURING = 30, 180
_B64 = "aGVsbG8="
BACKLOG = 60
# Of what the clock of the machine has a say in.
TRIES = 60


@dataclass(frozen=True)
class Trouble:
    """What a node's page of metrics said before and after, and how that goes on."""

    before: Page
    after: Page
    # `goes_on`: it happens again between any two scrapes; `once`: it happened; `always`: it was so at the first scrape.
    lasts: Literal["goes_on", "once", "always"]

    def series(self, names: set[str]) -> list[dict[str, str]]:
        """Write the series as promtool takes them."""
        found = [name for name in self.after if re.match(r"\w+", name)[0] in names]  # type: ignore[index]
        return [{"series": self._scraped(name), "values": self._values(name)} for name in found]

    def _scraped(self, name: str) -> str:
        metric, _, labels = name.rstrip("}").partition("{")
        return f'{metric}{{{labels}{"," if labels else ""}instance="n",job="penstock"}}'

    def _values(self, name: str) -> str:
        after, before = self.after[name], self.before.get(name)
        if self.lasts == "always":
            return f"{after}x{BEFORE + DURING}"
        first = f"_x{BEFORE}" if before is None else f"{before}x{BEFORE - 1}"
        grown = after - (before or 0.0)
        counts = name.partition("{")[0].endswith(("_total", "_bucket", "_count", "_sum"))
        return f"{first} {after}+{grown if counts and self.lasts == 'goes_on' else 0.0}x{DURING}"


def page_of(node: NodeProcess) -> Page:
    lines = node.ask("admin", "GET", "/metrics", token=True).body.decode().splitlines()
    split = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in split}


def rules() -> dict[str, str]:
    """Read the expression of each alert."""
    found = {}
    for rule in ALERTS.read_text("utf-8").split("- alert: ")[1:]:
        folded = re.search(r"expr: >-\n((?: {10}.*\n)+)", rule)
        plain = re.search(r"expr: (.+)", rule)
        assert plain is not None
        found[rule.split()[0]] = plain[1] if folded is None else " ".join(folded[1].split())
    return found


RULES = rules()


def reading(node: NodeProcess, metric: str, **labels: str) -> float:
    """Return the value of the one series that has these labels."""
    wanted = [f'{name}="{value}"' for name, value in labels.items()]
    found = [
        value
        for series, value in page_of(node).items()
        if series.partition("{")[0] == metric and all(label in series for label in wanted)
    ]
    assert len(found) == 1, (metric, labels, found)
    return found[0]


def above(node: NodeProcess, histogram: str, bound: str, service: str) -> float:
    """Return how many values of a histogram were above a bound."""
    page = page_of(node)
    whole = next(page[name] for name in page if name.startswith(f"{histogram}_count{{") and f'"{service}"' in name)
    marks = (f'le="{bound}"', f'service="{service}"')
    return whole - next(v for name, v in page.items() if name.startswith(histogram) and all(m in name for m in marks))


def fires(alert: str, series: list[dict[str, str]], folder: Path) -> bool:
    """Ask promtool whether an alert fires at any time of these series."""
    last = f"{STEP_S * (BEFORE + DURING)}s"
    firing = f'count(count_over_time(ALERTS{{alertname="{alert}",alertstate="firing"}}[{last}])) > bool 0'
    asked = {"expr": firing, "eval_time": last, "exp_samples": [{"labels": "{}", "value": 1}]}
    unit = {"interval": f"{STEP_S}s", "input_series": series, "promql_expr_test": [asked]}
    said = {"rule_files": [str(ALERTS)], "evaluation_interval": f"{STEP_S}s", "tests": [unit]}
    file = folder / f"{alert}.json"
    file.write_text(json.dumps(said))
    ran = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False)
    # Nothing that fires is an empty answer; any other complaint is a fault of the test.
    assert ran.returncode == 0 or "got:nil" in re.sub(r"\s", "", ran.stdout + ran.stderr), ran.stdout + ran.stderr
    return ran.returncode == 0


# --- a node in trouble


CONFIG = """
[node]
chaos = true
[mailbox]
backlog_messages_max = {backlog}
[omnigate.quotas]
per_ip_rps = 0
default_rps = 0
per_cap_rps = 0
[[omnigate.routes]]
prefix = "/dead"
upstream = ["http://127.0.0.1:{dead}"]
[[omnigate.routes]]
prefix = "/half"
upstream = ["http://127.0.0.1:{dead}", "{live}"]
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    folder = tmp_path_factory.mktemp("watched")
    with Upstream() as live:
        config = folder / "penstock.toml"
        config.write_text(CONFIG.format(backlog=BACKLOG, dead=free_port(), live=live.url))
        with NodeProcess("--config", str(config), data_dir=folder / "data") as running:
            yield running


def send(node: NodeProcess, topic: str) -> int:
    return node.ask("mailbox", "POST", "/v1/send", {"topic": topic, "payload_b64": _B64}, token=True).status


def a_message_dies(node: NodeProcess) -> None:
    assert node.ask("mailbox", "PUT", "/v1/topics/poison/settings", {"max_attempts": 1}, token=True).status == 200
    assert send(node, "poison") == 200
    (got,) = node.ask("mailbox", "POST", "/v1/recv", {"topic": "poison"}, token=True).json()["messages"]
    settle = {"msg_id": got["msg_id"], "receipt": got["receipt"]}
    assert node.ask("mailbox", "POST", "/v1/nack", settle, token=True).status == 200


def nobody_receives(node: NodeProcess) -> None:
    assert send(node, "left") == 200
    wait_until(lambda: any(name.startswith("topic_waiting") and '"left"' in name for name in page_of(node)))


def the_backlog_is_full(node: NodeProcess) -> None:
    said = [send(node, "full") for _ in range(BACKLOG + 1)]
    assert said[-1] == 429
    assert node.ask("mailbox", "POST", "/v1/topics/full/purge", token=True).status == 200


def callers_send_nonsense(node: NodeProcess) -> None:
    for _ in range(6 * STEP_S):
        assert node.ask("mailbox", "POST", "/v1/send", {"topic": 7}, token=True).status == 400


def a_task_is_restarted(node: NodeProcess) -> None:
    def restarts() -> float:
        return reading(node, "service_restarts_total", service="svc-mailbox", task="visibility_scanner")

    for _ in range(4):
        before = restarts()
        # One that is being restarted cannot be killed yet.
        wait_until(lambda: node.kill_task("svc-mailbox:visibility_scanner").status < 300)
        wait_until(lambda before=before: restarts() > before)  # type: ignore[misc]


def freeze(node: NodeProcess, seconds: float) -> None:
    """Stop the process for a while, as a machine without CPU does."""
    node.signal(signal.SIGSTOP)
    _pass(seconds)
    node.signal(signal.SIGCONT)


def _pass(seconds: float) -> None:
    time.sleep(seconds)  # lint: allow PK018 the time itself is the trouble: no event ends it


def the_loop_is_late(node: NodeProcess) -> None:
    for _ in range(TRIES):
        freeze(node, 0.6)
        _pass(0.1)
        if above(node, "loop_lag_seconds", "0.1", "node") >= 3:
            return
    pytest.fail("the loop was never late")


def commits_are_slow(node: NodeProcess) -> None:
    """Stop the node again and again while it writes, until that met a commit."""
    before = reading(node, "commit_seconds_count", service="svc-mailbox")
    message = {"topic": "wide", "payload_b64": "x" * (64 << 10)}
    ended = threading.Event()

    def write() -> None:
        while not ended.is_set():
            with suppress(OSError):
                node.ask("mailbox", "POST", "/v1/send/batch", {"messages": [message] * 8}, token=True)
                node.ask("mailbox", "POST", "/v1/topics/wide/purge", token=True)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(TRIES):
            _pass(0.01 + 0.001 * (time.monotonic_ns() % 10))
            freeze(node, 0.8)
            slow = above(node, "commit_seconds", "0.5", "svc-mailbox")
            if slow and 50 * slow > reading(node, "commit_seconds_count", service="svc-mailbox") - before:
                return
    finally:
        ended.set()
        writer.join()
    pytest.fail("no commit was met")


@pytest.mark.parametrize(
    ("alert", "trouble", "lasts"),
    [
        ("PenstockDeadLetters", a_message_dies, "once"),
        ("PenstockTopicStands", nobody_receives, "once"),
        ("PenstockBusy", the_backlog_is_full, "goes_on"),
        ("PenstockRefuses", callers_send_nonsense, "goes_on"),
        ("PenstockTaskRestarts", a_task_is_restarted, "once"),
        ("PenstockLoopLags", the_loop_is_late, "goes_on"),
        ("PenstockCommitsSlow", commits_are_slow, "goes_on"),
    ],
)
def test_an_alert_is_silent_before_its_trouble_and_fires_with_it(
    node: NodeProcess, tmp_path: Path, alert: str, trouble: Callable[[NodeProcess], None], lasts: Any
) -> None:
    before, names = page_of(node), metrics_of(RULES[alert])
    trouble(node)
    after = page_of(node)

    assert not fires(alert, Trouble(before, before, "goes_on").series(names), tmp_path)
    assert fires(alert, Trouble(before, after, lasts).series(names), tmp_path)


@pytest.mark.parametrize(
    ("alert", "route", "status"), [("PenstockUpstreamFails", "/dead", 503), ("PenstockBreakerOpen", "/half", 200)]
)
def test_a_dead_upstream_is_told_for_as_long_as_a_request_meets_it_now_and_then(
    node: NodeProcess, tmp_path: Path, alert: str, route: str, status: int
) -> None:
    def ask_often() -> None:
        for _ in range(10):
            assert node.ask("omnigate", "GET", f"{route}/x", token=True).status == status

    def counts(metric: str) -> float:
        return sum(v for name, v in page_of(node).items() if name.startswith(metric) and f'"{route}"' in name)

    while not counts("breaker_open{"):
        ask_often()
    # From here on the breaker refuses at once, but for a probe each few seconds.
    before, failed = page_of(node), counts("downstream_errors_total{")
    while counts("downstream_errors_total{") == failed:
        assert node.ask("omnigate", "GET", f"{route}/x", token=True).status == status
    after = page_of(node)

    assert fires(alert, Trouble(before, after, "goes_on").series(metrics_of(RULES[alert])), tmp_path)


def test_damage_that_is_found_at_the_start_is_told_although_nothing_grows_any_more(tmp_path: Path) -> None:
    with NodeProcess(data_dir=tmp_path / "data") as node:
        for _ in range(30):
            assert send(node, "orders") == 200
        node.signal(signal.SIGKILL)
        node.wait()
    flip_a_bit(tmp_path / "data" / "mailbox" / "mailbox.db-wal")
    with NodeProcess(data_dir=tmp_path / "data") as node:
        first = page_of(node)
        assert send(node, "orders") == 503
        refusing = page_of(node)

    damage = Trouble({}, first, "always").series(metrics_of(RULES["PenstockStorageDamaged"]))
    refusals = Trouble(first, refusing, "goes_on").series(metrics_of(RULES["PenstockNotReady"]))
    assert fires("PenstockStorageDamaged", damage, tmp_path)
    assert fires("PenstockNotReady", refusals, tmp_path)


def test_a_sender_with_a_wrong_hash_and_a_service_that_was_never_set_up_wake_nobody(tmp_path: Path) -> None:
    wrong = {"topic": "orders", "payload_b64": _B64, "payload_hash": "b3:" + "0" * 64}
    with NodeProcess("--set", "node.dht=false") as node:
        before = page_of(node)
        assert node.ask("mailbox", "POST", "/v1/send", wrong, token=True).json()["code"] == "integrity"
        assert node.ask("omnigate", "GET", f"/v1/dht/providers/b3:{'0' * 64}", token=True).status in {404, 503}
        after = page_of(node)

    for alert in ("PenstockStorageDamaged", "PenstockNotReady"):
        assert not fires(alert, Trouble(before, after, "goes_on").series(metrics_of(RULES[alert])), tmp_path)


@pytest.mark.full
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="no Prometheus (on Debian: apt-get install prometheus)")
def test_a_real_prometheus_finds_a_dead_upstream_and_a_node_that_is_gone(node: NodeProcess, tmp_path: Path) -> None:
    """The last test here, because it ends the node."""
    port, config = free_port(), tmp_path / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: penstock\n  static_configs:\n"
        f"  - targets: ['127.0.0.1:{node.port('admin')}']\n"
    )
    watcher = subprocess.Popen([
        "prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    ])  # fmt: skip

    def found(alert: str) -> list[dict[str, str]]:
        with suppress(OSError):
            return [row["metric"] for row in ask_prometheus(port, RULES[alert])["data"]["result"]]
        return []

    def routes(alert: str) -> set[str]:
        # Each look is preceded by a request: an upstream is called dead while somebody meets it.
        assert node.ask("omnigate", "GET", "/dead/x", token=True).status == 503
        return {row["service"] for row in found(alert)}

    try:
        wait_until(lambda: "/dead" in routes("PenstockUpstreamFails"), every_s=0.05)
        wait_until(lambda: "/dead" in routes("PenstockBreakerOpen"), every_s=0.05)
        assert "svc-mailbox" not in routes("PenstockUpstreamFails")
        assert found("PenstockDown") == []
        node.signal(signal.SIGKILL)
        wait_until(lambda: bool(found("PenstockDown")), every_s=0.2)
    finally:
        watcher.terminate()
        watcher.wait(30)
