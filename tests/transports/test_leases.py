"""What task frameworks stand on: messages that are held, renewed, settled and given back, on a real node."""

from __future__ import annotations

import os

import pytest

from penstock.client import sync
from penstock.testing import wait_until
from penstock.transports.leases import HeldMessages, ProcessClient
from penstock.transports.topics import topic_of
from tests.acceptance.node_process import NodeProcess


@pytest.fixture
def client(node: NodeProcess):
    made = ProcessClient(lambda: sync.connect(node.ready["data_dir"]))
    yield made
    made.close()


def test_names_of_queues_become_topics_of_their_own():
    assert topic_of("celery/", "tasks.high-prio_1") == "celery/tasks.high-prio_1"
    assert len({topic_of("x/", name) for name in ("a b", "a/b", "a:20b", "ä b", "a_b")}) == 5
    with pytest.raises(ValueError, match="too long"):
        topic_of("celery/", "q" * 200)


def test_a_held_message_outlives_its_lease_until_it_is_settled(client: ProcessClient):
    held, topic = HeldMessages(client, lease_ms=300), topic_of("transports/", "held")
    client.get().mailbox.send(topic, "x")
    (delivery,) = held.take(topic, wait_ms=1000)
    held.hold("tag", delivery)

    # Three leases long: somebody who waits gets nothing, because it is renewed.
    assert client.get().mailbox.recv(topic, wait_ms=900) == ()
    assert len(held) == 1
    held.ack("tag")
    assert client.get().mailbox.recv(topic, wait_ms=500) == ()


def test_what_is_given_back_is_there_at_once_and_settled_ones_are_forgotten(client: ProcessClient):
    held, topic = HeldMessages(client), topic_of("transports/", "back")
    for number in range(3):
        client.get().mailbox.send(topic, f"{number}")
    for delivery in held.take(topic, most=3, wait_ms=1000):
        held.hold(delivery.msg_id, delivery)
    assert len(held) == 3

    held.give_all_back()

    assert len(held) == 0
    held.ack("never held")
    wait_until(lambda: client.get().mailbox.topic(topic).ready == 3)


def test_what_is_rejected_for_good_is_kept_as_a_dead_letter(client: ProcessClient):
    held, topic = HeldMessages(client), topic_of("transports/", "ended")
    client.get().mailbox.send(topic, "x")
    (delivery,) = held.take(topic, wait_ms=1000)
    held.hold("tag", delivery)

    held.end("tag")

    (letter,) = client.get().mailbox.dead_letters(topic)
    assert (letter.msg_id, letter.reason, letter.attempts, len(held)) == (delivery.msg_id, "rejected", 1, 0)


def test_a_lost_lease_is_no_error_of_the_framework(client: ProcessClient):
    held, topic = HeldMessages(client), topic_of("transports/", "lost")
    client.get().mailbox.send(topic, "x")
    (delivery,) = held.take(topic, wait_ms=1000)
    held.hold("tag", delivery)
    client.get().mailbox.purge(topic)

    held.ack("tag")

    assert len(held) == 0


def test_a_forked_process_has_a_client_of_its_own(client: ProcessClient):
    first = client.get()
    assert client.get() is first

    client._pid = os.getpid() + 1

    second = client.get()
    assert second is not first
    first.close()
