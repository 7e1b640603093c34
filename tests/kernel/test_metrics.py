"""Metrics: declared once, plain integers on the hot path."""

from __future__ import annotations

import pytest

from penstock.kernel.metrics import Histogram, Metrics, Summary


def test_declaring_twice_alike_gives_the_same_counter() -> None:
    metrics = Metrics("svc-test")
    metrics.counter("busy_rejections_total", "Refused.", endpoint="/send").value += 2
    metrics.counter("busy_rejections_total", endpoint="/send").inc(3)
    metrics.counter("busy_rejections_total", endpoint="/recv")

    (family,) = metrics.families()
    assert (family.name, family.kind, family.help) == ("busy_rejections_total", "counter", "Refused.")
    assert metrics.value("busy_rejections_total", endpoint="/send") == 5
    assert len(family.series) == 2


@pytest.mark.parametrize("again", [{}, {"queue": "work"}, {"endpoint": "/", "queue": "work"}])
def test_other_labels_under_one_name_are_a_bug(again) -> None:
    metrics = Metrics("svc-test")
    metrics.counter("busy_rejections_total", endpoint="/")

    with pytest.raises(ValueError, match="already declared"):
        metrics.counter("busy_rejections_total", **again)
    with pytest.raises(ValueError, match="already declared"):
        metrics.gauge("busy_rejections_total", endpoint="/")


def test_an_empty_label_is_an_absent_one() -> None:
    metrics = Metrics("svc-mailbox")
    metrics.gauge("queue_depth", queue="work", shard="3").set(4)
    metrics.gauge("queue_depth", queue="reproc", shard="").set(5)

    (family,) = metrics.families()
    assert set(family.series) == {(("queue", "work"), ("shard", "3")), (("queue", "reproc"),)}
    assert metrics.value("queue_depth", queue="reproc") == 5


@pytest.mark.parametrize("name", ["Upper", "9lives", "with-dash", "", "a b", "new\nline"])
def test_names_are_plain(name) -> None:
    with pytest.raises(ValueError, match="not a metric"):
        Metrics("svc-test").counter(name)


def test_a_gauge_reads_its_owner_and_a_watched_counter_sums_its_owners() -> None:
    metrics, depth = Metrics("svc-test"), [3]
    metrics.gauge("queue_depth", read=lambda: depth[0])
    dropped = metrics.watched("queue_dropped_total")
    dropped.append(lambda: 4)
    dropped.append(lambda: depth[0])
    depth[0] = 7

    assert metrics.value("queue_depth") == 7
    assert metrics.value("queue_dropped_total") == 11


def test_whoever_says_what_a_metric_means_is_heard() -> None:
    metrics = Metrics("svc-test")
    metrics.counter("early_total")
    metrics.counter("early_total", "Said later.")
    metrics.counter("early_total", "Said too late.")

    assert metrics.families()[0].help == "Said later."


def test_a_histogram_counts_by_upper_bound() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.100001, 1.0, 5.0):
        histogram.observe(value)

    assert histogram.counts == [2, 2, 1]
    assert (histogram.count, histogram.total) == (5, pytest.approx(6.250001))


def test_a_summary_keeps_count_sum_and_peak() -> None:
    summary = Summary()
    for value in (1.0, 4.0, 2.0):
        summary.observe(value)

    assert (summary.count, summary.total, summary.peak) == (3, 7.0, 4.0)


def test_a_forgotten_series_is_gone_and_its_family_stays() -> None:
    metrics = Metrics("svc-test")
    metrics.counter("peer_total", peer="a").inc()
    metrics.forget("peer_total", peer="a")
    metrics.forget("never_declared", peer="a")

    assert [len(family.series) for family in metrics.families()] == [0]
    assert metrics.counter("peer_total", peer="a").value == 0
