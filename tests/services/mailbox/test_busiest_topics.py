"""The busiest topics are followed, at most 200; what the others do is counted as `other`."""

from __future__ import annotations

from penstock.kernel.metrics import Metrics
from penstock.node.mailbox_page import TopicMetrics
from penstock.services.mailbox.ledger import DEPARTED_MAX, MailboxBounds, MailboxLedger
from penstock.services.mailbox.shards.busiest import LOOKED_AT, QUIET_S, TOPICS_MAX, BusiestTopics


def ledger_of(*names: str) -> MailboxLedger:
    ledger = MailboxLedger(MailboxBounds())
    for name in names:
        ledger.topic(name)
    return ledger


def send(ledger: MailboxLedger, name: str, count: int = 1) -> None:
    topic = ledger.topic(name)
    topic.sends += count
    topic.living += count
    ledger.messages += count
    ledger.sent += count


def ack(ledger: MailboxLedger, name: str, count: int = 1) -> None:
    topic = ledger.topic(name)
    topic.recvs += count
    topic.acks += count
    topic.living -= count
    ledger.messages -= count
    ledger.delivered += count
    ledger.acked += count


def test_rates_are_those_of_the_last_step() -> None:
    ledger = ledger_of()
    topics = BusiestTopics(ledger)
    send(ledger, "orders")
    topics.step(0.0)
    send(ledger, "orders", 10)
    ack(ledger, "orders", 4)
    topics.step(2.0)

    busy = topics.busy["orders"]
    assert (busy.in_rate, busy.recv_rate, busy.out_rate) == (5.0, 2.0, 2.0)
    topics.step(3.0)
    assert busy.in_rate == 0.0


def test_a_topic_that_came_and_was_drained_between_two_steps_shows_what_it_did() -> None:
    ledger = ledger_of()
    topics = BusiestTopics(ledger)
    topics.step(0.0)
    send(ledger, "flash", 50)
    ack(ledger, "flash", 50)
    topics.step(2.0)

    busy = topics.busy["flash"]
    assert (busy.in_rate, busy.recv_rate, busy.out_rate) == (25.0, 25.0, 25.0)
    topics.step(3.0)
    assert (busy.in_rate, busy.out_rate) == (0.0, 0.0)


def test_a_topic_that_the_ledger_forgot_shows_what_it_did_and_all_its_lives_once_it_is_followed() -> None:
    ledger = ledger_of()
    topics = BusiestTopics(ledger)
    topics.step(0.0)
    for step_s in (1.0, 2.0):
        for _ in range(3):
            send(ledger, "flash", 10)
            ack(ledger, "flash", 10)
            assert ledger.forget_idle(ledger.topics["flash"])
        topics.step(step_s)
        rates = topics.busy["flash"].in_rate, topics.busy["flash"].out_rate

        assert rates == ((10.0, 10.0) if step_s == 1.0 else (30.0, 30.0))
        assert ledger.departed == []
    assert topics.other_sent + topics.busy["flash"].sent == ledger.sent


def test_a_topic_beyond_the_busiest_is_counted_though_as_many_of_those_were_forgotten() -> None:
    ledger = ledger_of()
    topics = BusiestTopics(ledger)
    for number in range(TOPICS_MAX):
        send(ledger, f"t{number:03}", 10)
    topics.step(0.0)
    assert topics.unfollowed() == 0
    send(ledger, "quiet")
    ack(ledger, "t007", 10)
    ack(ledger, "t008", 10)
    assert ledger.forget_idle(ledger.topics["t007"])
    assert ledger.forget_idle(ledger.topics["t008"])

    assert (len(ledger.topics), topics.unfollowed()) == (TOPICS_MAX - 1, 1)


def test_topics_that_were_forgotten_are_kept_in_a_bounded_number() -> None:
    ledger = ledger_of()
    for number in range(2 * DEPARTED_MAX):
        send(ledger, f"flash{number}")
        ack(ledger, f"flash{number}")
        assert ledger.forget_idle(ledger.topics[f"flash{number}"])
    topics = BusiestTopics(ledger)

    assert len(ledger.departed) == DEPARTED_MAX
    topics.step(0.0)
    assert (len(topics.busy), topics.other_sent, ledger.departed) == (TOPICS_MAX, 2 * DEPARTED_MAX, [])


def test_what_is_counted_by_topic_and_as_other_is_everything() -> None:
    ledger = ledger_of()
    topics = BusiestTopics(ledger)
    for second in range(40):
        for number in range(TOPICS_MAX + 60):
            send(ledger, f"t{number}", 1 + (number * second) % 7)
        topics.step(float(second))

    assert len(topics.busy) == TOPICS_MAX
    followed = sum(each.sent for each in topics.busy.values())
    gone = ledger.sent - followed - topics.other_sent
    # A topic that made room takes its count along; what it did under its own name was shown while it was followed.
    assert 0 <= gone < ledger.sent
    assert topics.other_sent > 0


def test_other_never_falls_and_counts_what_nobody_follows() -> None:
    ledger = ledger_of()
    topics = BusiestTopics(ledger)
    for number in range(TOPICS_MAX):
        send(ledger, f"t{number}", 100)
    topics.step(0.0)
    before = topics.other_sent
    send(ledger, "small", 3)
    topics.step(1.0)

    assert "small" not in topics.busy
    assert topics.other_sent == before + 3


def test_a_busier_topic_takes_the_place_of_the_least_busy() -> None:
    ledger = ledger_of()
    topics = BusiestTopics(ledger)
    for number in range(TOPICS_MAX):
        send(ledger, f"t{number}", 1 if number == 7 else 50)
    topics.step(0.0)
    send(ledger, "t7", 1)
    topics.step(0.5)
    send(ledger, "flood", 1000)
    before = topics.other_sent

    assert topics.step(1.0) == ["t7"]
    assert "flood" in topics.busy
    # What t7 did while it had a name was counted under it; `other` takes what nobody followed when it happened.
    topics.step(1.5)
    assert topics.other_sent == before + 1000


def test_few_make_room_in_a_step_and_whoever_waited_comes_in_a_later_one() -> None:
    ledger = ledger_of()
    topics = BusiestTopics(ledger)
    for number in range(TOPICS_MAX):
        send(ledger, f"a{number}")
    topics.step(0.0)
    for number in range(TOPICS_MAX):
        send(ledger, f"b{number}", 10)

    gone = [len(topics.step(float(second))) for second in range(1, 6)]

    assert gone == [50, 50, 50, 50, 0]
    assert {each.name[0] for each in topics.busy.values()} == {"b"}


def test_a_drained_topic_stays_for_an_hour_and_then_goes() -> None:
    ledger = ledger_of()
    topics = BusiestTopics(ledger)
    send(ledger, "orders")
    topics.step(0.0)
    ack(ledger, "orders")
    topics.step(1.0)
    assert ledger.forget_idle(ledger.topics["orders"])

    assert topics.step(QUIET_S) == []
    assert "orders" in topics.busy
    assert topics.step(QUIET_S + 2.0) == ["orders"]


def test_a_topic_that_was_forgotten_and_begins_again_is_the_same_one() -> None:
    ledger = ledger_of()
    topics = BusiestTopics(ledger)
    send(ledger, "orders", 5)
    topics.step(0.0)
    ack(ledger, "orders", 5)
    topics.step(1.0)
    ledger.forget_idle(ledger.topics["orders"])
    send(ledger, "orders", 2)
    topics.step(2.0)

    assert (topics.busy["orders"].sent, topics.busy["orders"].acked, topics.busy["orders"].in_rate) == (2, 5, 2.0)


def test_a_step_looks_at_a_bounded_number_of_topics_and_comes_to_all_in_turn() -> None:
    ledger = ledger_of(*(f"idle{number}" for number in range(3 * LOOKED_AT)))
    topics = BusiestTopics(ledger)
    send(ledger, "idle5")
    steps = 0
    while "idle5" not in topics.busy:
        topics.step(float(steps))
        steps += 1

    assert 1 <= steps <= 3


def test_metrics_name_the_busiest_and_sum_the_rest_and_forget_who_left() -> None:
    ledger, metrics = ledger_of(), Metrics("svc-mailbox")
    topics = BusiestTopics(ledger)
    shown = TopicMetrics(metrics, topics)
    for number in range(TOPICS_MAX):
        send(ledger, f"t{number}", 2 if number == 7 else 50)
    shown.update(topics.step(0.0))
    send(ledger, "flood", 1000)
    shown.update(topics.step(1.0))
    send(ledger, "flood", 7)
    send(ledger, "t7", 1)
    shown.update(topics.step(2.0))

    family = next(each for each in metrics.families() if each.name == "topic_sent_total")
    assert len(family.series) == TOPICS_MAX + 1
    assert metrics.value("topic_sent_total", topic="flood") == 7
    assert (("topic", "t7"),) not in family.series
    assert metrics.value("topic_waiting", topic="other") == 3


def test_a_topic_that_is_called_other_is_counted_with_the_others() -> None:
    ledger, metrics = ledger_of(), Metrics("svc-mailbox")
    topics = BusiestTopics(ledger)
    shown = TopicMetrics(metrics, topics)
    send(ledger, "other", 3)
    shown.update(topics.step(0.0))
    send(ledger, "other", 2)
    shown.update(topics.step(1.0))

    assert metrics.value("topic_sent_total", topic="other") == 5
    assert metrics.value("topic_waiting", topic="other") == 5
