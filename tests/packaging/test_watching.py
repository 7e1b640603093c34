"""Dashboards and alerts ask for metrics that a node has, and a real Prometheus answers every one of their queries."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from penstock.config import Sources, load
from penstock.node.build import SERVICE_NAMES, Node, schema
from penstock.testing.waiting import wait_until
from tests.acceptance.node_process import NodeProcess, free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = DEPLOY / "grafana" / "penstock.json"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
_WORDS = re.compile(r"[a-z_][a-z0-9_]*(?=[{\[)\s]|$)")
# What Prometheus and its client library bring themselves, and the words of its language.
_FOREIGN = {"up", "process_cpu_seconds_total", "process_resident_memory_bytes"}
_LANGUAGE = {"by", "on", "and", "sum", "max", "rate", "increase", "topk", "histogram_quantile", "le"}


def panel_queries() -> list[str]:
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def alert_queries() -> list[str]:
    text = ALERTS.read_text("utf-8")
    folded = re.findall(r"expr: >-\n((?: {10}.*\n)+)", text)
    return [*re.findall(r"expr: ((?!>-).+)", text), *(" ".join(each.split()) for each in folded)]


def metrics_of(query: str) -> set[str]:
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|(?:by|on) \([^)]*\)|\"[^\"]*\"", " ", query)
    return {word for word in _WORDS.findall(bare) if word not in _LANGUAGE}


def known_metrics() -> set[str]:
    sources = Sources(sets=tuple(f"node.{name}=true" for name in SERVICE_NAMES))
    node = Node(load(schema(), sources), sources, token="psp1_not-a-real-token")
    node.forget()
    families = [family for part in node.parts for family in part.supervisor.inventory.metrics.families()]
    parts = {
        f"{family.name}_{part}" for family in families if family.kind == "histogram" for part in ("bucket", "count")
    }
    return {family.name for family in families} | parts | _FOREIGN


def test_every_query_asks_for_a_metric_that_a_node_has() -> None:
    queries = [*panel_queries(), *alert_queries()]
    known = known_metrics()

    assert len(panel_queries()) > 25
    assert len(alert_queries()) == ALERTS.read_text("utf-8").count("- alert:")
    assert {query: metrics_of(query) - known for query in queries if metrics_of(query) - known} == {}
    assert [query for query in queries if not metrics_of(query)] == []


def test_every_alert_says_what_to_do_next() -> None:
    rules = ALERTS.read_text("utf-8").split("- alert:")[1:]

    assert [rule.split()[0] for rule in rules if "next:" not in rule or "severity:" not in rule] == []


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here (on Debian: apt-get install prometheus)")
def test_promtool_takes_the_rules_and_the_configuration() -> None:
    for command in (["rules", ALERTS], ["config", DEPLOY / "prometheus" / "prometheus.yml"]):
        ran = subprocess.run(["promtool", "check", *map(str, command)], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def ask(port: int, query: str) -> dict[str, Any]:
    url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(url, timeout=10) as answer:
        said: dict[str, Any] = json.load(answer)
        return said


@pytest.mark.full
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="no Prometheus (on Debian: apt-get install prometheus)")
def test_a_real_prometheus_answers_every_query_of_the_dashboard(tmp_path: Path) -> None:
    port = free_port()
    with NodeProcess("--set", "admin.open_metrics=true", data_dir=tmp_path / "node") as node:
        config = tmp_path / "prometheus.yml"
        target = f"127.0.0.1:{node.port('admin')}"
        config.write_text(
            "global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: penstock\n  static_configs:\n"
            f"  - targets: ['{target}']\n"
        )
        for number in range(5):
            node.ask("mailbox", "POST", "/v1/send", {"topic": "orders", "payload_b64": "aGk="}, token=True)
            node.ask("mailbox", "POST", "/v1/send", {"bad": number}, token=True)
        command = [
            "prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
        ]  # fmt: skip
        watcher = subprocess.Popen(command)
        try:
            _scraped(port)
            answers = {query: ask(port, query.replace("$__rate_interval", "1m")) for query in panel_queries()}
        finally:
            watcher.terminate()
            watcher.wait(30)

    assert {query: said for query, said in answers.items() if said["status"] != "success"} == {}
    assert answers['sum(up{job="penstock"})']["data"]["result"][0]["value"][1] == "1"
    assert float(answers["sum(topic_waiting)"]["data"]["result"][0]["value"][1]) == 5.0


def _scraped(port: int) -> None:
    """Wait until the node was scraped several times."""

    def often() -> bool:
        try:
            found = ask(port, "count_over_time(topic_waiting[1m])")["data"]["result"]
        except OSError:
            return False
        return bool(found) and float(found[0]["value"][1]) >= 3

    wait_until(often, every_s=0.2)
