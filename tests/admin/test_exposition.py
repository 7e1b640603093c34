"""The scrape page: what Prometheus' own parser reads from it is what the counters hold."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.admin.exposition import Exposition
from penstock.kernel.metrics import Metrics
from penstock.testing import VirtualClock


def scraped(*services: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Render and parse back, without the process's own metrics."""
    page = Exposition(lambda: services).render().decode()
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    return {(s.name, frozenset(s.labels.items())): s.value for s in samples if "service" in s.labels}


def test_every_series_carries_its_service_and_its_value() -> None:
    mailbox, gate = Metrics("svc-mailbox"), Metrics("omnigate")
    mailbox.counter("busy_rejections_total", "Refused.", endpoint="/v1/send", queue="work").value = 3
    gate.counter("busy_rejections_total", "Refused.", endpoint="/v1/o", queue="work").value = 5
    gate.gauge("queue_depth", "Waiting.", read=lambda: 7, queue="work")
    read = scraped(mailbox, gate)

    send = frozenset({("endpoint", "/v1/send"), ("queue", "work"), ("service", "svc-mailbox")})
    assert read["busy_rejections_total", send] == 3
    assert read["queue_depth", frozenset({("queue", "work"), ("service", "omnigate")})] == 7
    assert len(read) == 3


def test_histograms_are_cumulative_and_end_in_infinity() -> None:
    metrics = Metrics("svc")
    histogram = metrics.histogram("request_latency_seconds", "Latency.", buckets=(0.1, 1.0), op="send")
    for value in (0.05, 0.5, 5.0, 0.1):
        histogram.observe(value)
    read = scraped(metrics)
    labels = {("op", "send"), ("service", "svc")}

    buckets = {
        le: read["request_latency_seconds_bucket", frozenset({*labels, ("le", le)})] for le in ("0.1", "1.0", "+Inf")
    }
    assert buckets == {"0.1": 2, "1.0": 3, "+Inf": 4}
    assert read["request_latency_seconds_count", frozenset(labels)] == 4
    assert read["request_latency_seconds_sum", frozenset(labels)] == pytest.approx(5.65)


def test_services_may_label_the_same_family_differently() -> None:
    plain, sharded = Metrics("svc-interop"), Metrics("svc-mailbox")
    plain.gauge("queue_depth", "Waiting.", queue="work").set(1)
    sharded.gauge("queue_depth", "Waiting.", queue="work", shard="3").set(2)
    read = scraped(plain, sharded)

    assert read["queue_depth", frozenset({("queue", "work"), ("service", "svc-interop")})] == 1
    assert read["queue_depth", frozenset({("queue", "work"), ("shard", "3"), ("service", "svc-mailbox")})] == 2


def test_the_page_says_what_the_process_uses() -> None:
    assert b"process_resident_memory_bytes" in Exposition(list).render()


def test_a_familys_own_service_label_keeps_its_meaning() -> None:
    gate = Metrics("omnigate")
    for downstream in ("svc-mailbox", "svc-storage"):
        gate.counter("downstream_errors_total", "Errors.", service=downstream).value = 1
    read = scraped(gate)

    assert read["downstream_errors_total", frozenset({("service", "svc-mailbox"), ("owner", "omnigate")})] == 1
    assert len(read) == 2


def test_page_that_is_asked_for_too_often_is_the_last_one() -> None:
    """Each page takes 100 ms here: three are made at once, and then one a second."""
    clock, made = VirtualClock(), []

    def sources() -> list[Metrics]:
        made.append(1)
        clock.advance(0.1)
        return []

    exposition = Exposition(sources, clock)
    for _ in range(500):
        exposition.page()
    at_once = len(made)
    clock.advance(10.0)
    for _ in range(500):
        exposition.page()

    assert (at_once, len(made)) == (4, 7)


def test_strangers_of_one_second_share_one_page() -> None:
    clock, metrics, made = VirtualClock(), Metrics("svc"), []
    counter = metrics.counter("asked_total", "Asked.")

    def sources() -> list[Metrics]:
        made.append(1)
        return [metrics]

    exposition = Exposition(sources, clock)
    pages = set()
    for _ in range(500):
        counter.value += 1
        pages.add(exposition.recent_page())
        clock.advance(0.01)

    assert (len(made), len(pages)) == (5, 5)


def test_a_page_shows_what_has_changed_since_the_last_one_and_forgets_what_is_gone() -> None:
    metrics = Metrics("svc")
    counter = metrics.counter("asked_total", "Asked.")
    metrics.gauge("topic_depth", "Depth.", read=lambda: 4, topic="a")
    latency = metrics.histogram("took_seconds", "Took.", buckets=(0.1,))
    exposition = Exposition(lambda: [metrics])
    exposition.render()

    counter.value = 7
    latency.observe(0.05)
    metrics.forget("topic_depth", topic="a")
    page = exposition.render().decode()

    assert 'asked_total{service="svc"} 7.0\n' in page
    assert 'took_seconds_bucket{service="svc",le="0.1"} 1.0\n' in page
    assert 'took_seconds_sum{service="svc"} 0.05\n' in page
    assert "topic_depth{" not in page


def test_a_series_that_is_declared_again_gets_its_new_bounds() -> None:
    metrics = Metrics("svc")
    metrics.histogram("took_seconds", "Took.", buckets=(0.1,))
    exposition = Exposition(lambda: [metrics])
    exposition.render()
    metrics.forget("took_seconds")
    metrics.histogram("took_seconds", "Took.", buckets=(0.1, 0.2))

    assert b'le="0.2"' in exposition.render()


def test_labels_and_help_are_escaped_and_odd_numbers_are_readable() -> None:
    metrics = Metrics("svc")
    metrics.gauge("odd", 'A "help"\nof two \\ lines.', read=lambda: float("inf"), path='a"b\\c\nd')
    page = Exposition(lambda: [metrics]).render().decode()
    (family,) = [each for each in text_string_to_metric_families(page) if each.name == "odd"]

    assert family.documentation == 'A "help"\nof two \\ lines.'
    assert family.samples[0].labels["path"] == 'a"b\\c\nd'
    assert family.samples[0].value == float("inf")
