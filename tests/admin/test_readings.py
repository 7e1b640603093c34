"""What is measured once a second: rates from counters, quantiles of the last second alone, and the process itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.admin.readings import MetricReadings, PerSecond, ProcessReadings, Quantiles
from penstock.kernel.metrics import Histogram, Metrics


def test_a_rate_is_growth_over_the_time_that_passed() -> None:
    rates = PerSecond()

    assert rates.rates({"sent": 100}, 10.0) == {}
    assert rates.rates({"sent": 130, "new": 4}, 12.0) == {"sent": 15.0, "new": 2.0}
    assert rates.rates({"sent": 5, "new": 4}, 13.0) == {"sent": 0.0, "new": 0.0}


def test_quantiles_are_of_what_was_counted_since_the_last_look() -> None:
    histogram, quantiles = Histogram((0.001, 1.0)), Quantiles()
    histogram.observe(0.5)

    assert quantiles.since([histogram], 0.5) == [None]
    for _ in range(10):
        histogram.observe(0.0005)
    assert quantiles.since([histogram], 0.5) == [pytest.approx(0.0005)]
    assert quantiles.since([histogram], 0.5) == [None]


def test_refusals_are_added_up_by_reason_over_all_services() -> None:
    mailbox, gate = Metrics("svc-mailbox"), Metrics("omnigate")
    counters = [each.counter("rejected_total", reason="busy") for each in (mailbox, gate)]
    readings = MetricReadings(lambda: [mailbox, gate])
    readings(1.0)
    for counter in counters:
        counter.value += 3
    mailbox.counter("rejected_total", reason="malformed").value += 1

    values = readings(2.0)
    assert (values["refused"], values["refused.busy"], values["refused.malformed"]) == (7.0, 6.0, 1.0)


def test_a_flood_of_reasons_has_a_bounded_number_of_series() -> None:
    metrics = Metrics("svc-x")
    readings = MetricReadings(lambda: [metrics])
    readings(1.0)
    for number in range(50):
        metrics.counter("rejected_total", reason=f"r{number}").value += 1

    values = readings(2.0)
    assert len([name for name in values if name.startswith("refused.")]) == 17
    assert values["refused.other"] == 34.0
    assert values["refused"] == 50.0


def test_delays_come_from_the_histograms_of_sends_proxied_requests_commits_and_the_loop() -> None:
    mailbox, gate, node = Metrics("svc-mailbox"), Metrics("omnigate"), Metrics("node")
    asked = "request_latency_seconds"
    seen = {
        "send": mailbox.histogram("send_seconds"),
        "proxy": gate.histogram(asked, route="/shop/{rest*}", op=""),
        "commit": mailbox.histogram("commit_seconds"),
        "lag": node.histogram("loop_lag_seconds"),
    }
    others = [
        mailbox.histogram(asked, route="/v1/recv", op="recv"),
        # Counted at the gateway's door and where the message is stored, it would count twice.
        gate.histogram(asked, route="/v1/send", op="send"),
        gate.histogram(asked, route="/v1/o", op="get"),
    ]
    readings = MetricReadings(lambda: [mailbox, gate, node])
    readings(1.0)
    for histogram in (*seen.values(), *others):
        histogram.observe(0.002 if histogram in seen.values() else 4.0)

    values = readings(2.0)
    assert {name for name in values if name.endswith("_p99")} == {f"{name}_p99" for name in seen}
    assert all(0.001 < values[f"{name}_p99"] <= 0.0025 for name in seen)


def test_a_delay_that_nobody_had_in_this_second_has_no_value() -> None:
    mailbox = Metrics("svc-mailbox")
    delays = mailbox.histogram("send_seconds")
    readings = MetricReadings(lambda: [mailbox])
    readings(1.0)
    delays.observe(0.002)

    assert "send_p99" in readings(2.0)
    assert readings(3.0) == {"refused": 0.0, "answered.svc-mailbox": 0.0}


def test_the_process_tells_its_cpu_memory_and_disk(tmp_path: Path) -> None:
    readings = ProcessReadings(tmp_path)
    first = readings(1.0)
    sum(number * number for number in range(200_000))
    second = readings(2.0)

    assert "cpu" not in first
    assert second["cpu"] > 0.0
    assert second["rss"] > 1 << 20
    assert 0.0 <= second["disk"] <= 100.0
    assert second["disk_free"] > 0


def test_without_a_data_directory_or_when_it_is_gone_no_disk_is_shown(tmp_path: Path) -> None:
    assert "disk" not in ProcessReadings(None)(1.0)
    assert "disk" not in ProcessReadings(tmp_path / "gone")(1.0)
