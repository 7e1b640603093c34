"""The blocking face: the same results and errors, from any thread, and no thread left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.client import ClientClosed, LeaseLost, new_message, sync
from penstock.kernel.errors import Canceled, Malformed, NotFound
from penstock.testing import wait_until
from tests.acceptance.node_process import NodeProcess


@pytest.fixture
def client(node: NodeProcess):
    before = set(threading.enumerate())
    with sync.connect(node.ready["data_dir"]) as opened:
        yield opened
    assert set(threading.enumerate()) <= before


def test_results_and_errors_are_the_same(client: sync.SyncClient) -> None:
    sent = client.mailbox.send("blocking", "x")
    [got] = client.mailbox.recv("blocking", wait_ms=20_000)
    client.mailbox.ack(got)

    assert got.msg_id == sent.msg_id
    assert client.passport.issue("ada", "svc-mailbox", caveats=["op=send"]).caveats == ("op=send",)
    with pytest.raises(NotFound):
        client.mailbox.topic("nobody")
    with pytest.raises(Malformed):
        client.mailbox.send("not a topic!", "x")
    assert list(client.mailbox.dead_letters("blocking")) == []


def test_all_of_a_topic_is_looked_at_and_one_message(client: sync.SyncClient) -> None:
    sent = []
    for count in (256, 44):
        results = client.mailbox.send_batch([new_message("looked", str(number)) for number in range(count)])
        sent += [each.msg_id for each in results]
    seen = {limit: [each.msg_id for each in client.mailbox.peek_all("looked", limit=limit)] for limit in (None, 2, 299)}
    first = client.mailbox.peek_page("looked", limit=256)
    rest = client.mailbox.peek_page("looked", limit=256, cursor=first.cursor)

    assert seen == {limit: sent[:limit] for limit in seen}
    assert ([each.msg_id for each in rest.messages], rest.cursor) == (sent[256:], None)
    assert client.mailbox.peek_one("looked", sent[-1], payload=True).payload == b"43"
    assert [each.msg_id for each in client.mailbox.peek("looked", limit=3)] == sent[:3]
    assert client.mailbox.purge("looked") == 300
    with pytest.raises(NotFound):
        client.mailbox.peek_one("looked", sent[-1])


def test_many_threads_may_call_at_once(client: sync.SyncClient) -> None:
    with ThreadPoolExecutor(8) as threads:
        sent = set(threads.map(lambda n: client.mailbox.send("threads", str(n)).msg_id, range(200)))
        taken = []
        while len(taken) < 200:
            taken += client.mailbox.recv("threads", max_messages=20, wait_ms=20_000)
        list(threads.map(client.mailbox.ack, taken))

    assert {message.msg_id for message in taken} == sent
    assert "threads" not in {stats.topic for stats in client.mailbox.topics()}


def test_a_block_acks_and_an_error_nacks(client: sync.SyncClient) -> None:
    client.mailbox.send("block", "good")
    for delivery in client.mailbox.consume("block"):
        with delivery as message:
            assert message.payload == b"good"
        break

    client.mailbox.send("block", "bad")
    delivery = next(iter(client.mailbox.consume("block")))
    with pytest.raises(ZeroDivisionError), delivery:
        raise ZeroDivisionError
    [again] = client.mailbox.recv("block", wait_ms=20_000)
    assert (again.payload, again.attempt) == (b"bad", 2)


def test_a_lost_lease_is_seen_and_comes_out_of_the_block(client: sync.SyncClient) -> None:
    client.mailbox.send("lost", "x")
    # Long enough to be given back while it is ours, short enough to be missed soon.
    delivery = next(iter(client.mailbox.consume("lost", visibility_ms=6000)))

    def work() -> None:
        with delivery:
            client.mailbox.nack(delivery, delay_ms=60_000)
            wait_until(lambda: delivery.lost is not None)

    with pytest.raises(LeaseLost):
        work()


def test_handlers_run_in_threads_and_keep_their_leases(client: sync.SyncClient) -> None:
    for n in range(4):
        client.mailbox.send("work", str(n))
    # Renewed after five seconds, lost after fifteen: a machine may freeze for some of them.
    consumer = client.mailbox.consume("work", concurrency=4, visibility_ms=15_000)
    renewed = client._client.inventory.metrics.counter("leases_renewed_total", "Leases that were lengthened.")

    done, names = work_on(consumer, lambda: renewed.value >= 4)

    assert sorted(done) == [(str(n).encode(), 1) for n in range(4)]
    assert len(names) == 4


def work_on(consumer: sync.SyncConsumer, renewed: Callable[[], bool]) -> tuple[list[tuple[bytes, int]], set[str]]:
    """Handle four messages side by side until their leases are renewed; returns what was handled, by which threads."""
    done, names = [], set()

    def handle(delivery: sync.SyncDelivery) -> None:
        names.add(threading.current_thread().name)
        wait_until(lambda: len(names) == 4)
        wait_until(renewed)
        done.append((delivery.payload, delivery.attempt))
        if len(done) >= 4:
            consumer.stop()

    consumer.run(handle)
    return done, names


def test_a_handler_that_fails_does_not_end_the_run(client: sync.SyncClient) -> None:
    client.mailbox.send("fails", "x")
    consumer, attempts = client.mailbox.consume("fails"), []

    def handle(delivery: sync.SyncDelivery) -> None:
        attempts.append(delivery.attempt)
        if delivery.attempt < 3:
            raise RuntimeError
        consumer.stop()

    consumer.run(handle)

    assert attempts == [1, 2, 3]


def test_a_failing_handler_is_counted_and_logged(client: sync.SyncClient, caplog: pytest.LogCaptureFixture) -> None:
    client.mailbox.send("seen", "x")
    consumer = client.mailbox.consume("seen")

    def handle(_delivery: sync.SyncDelivery) -> None:
        consumer.stop()
        raise RuntimeError("boom")

    consumer.run(handle)

    metrics = client._client.inventory.metrics
    assert metrics.value("job_failures_total", worker="handler", type="RuntimeError") == 1
    assert "handler.failed" in [record.fields["event"] for record in caplog.records]


def test_a_thread_that_ends_ends_the_run(client: sync.SyncClient) -> None:
    """Fewer threads than were asked for would go on as if nothing had happened."""
    client.mailbox.send("quits", "x")
    consumer, told = client.mailbox.consume("quits", concurrency=3), []

    def handle(delivery: sync.SyncDelivery) -> None:
        delivery.ack()
        raise SystemExit(3)

    def consume() -> None:
        with pytest.raises(SystemExit):
            consumer.run(handle)
        told.append("ended")

    consuming = threading.Thread(target=consume)
    consuming.start()
    consuming.join(80)
    ended = list(told)
    consumer.stop()
    consuming.join(80)

    assert ended == ["ended"]


def test_a_client_closed_by_another_thread_tells_those_who_use_it(node: NodeProcess) -> None:
    client = sync.connect(node.ready["data_dir"])
    client.mailbox.send("closing", "x")
    working, told = threading.Event(), []

    def handle(delivery: sync.SyncDelivery) -> None:
        working.set()
        wait_until(lambda: delivery.lost is not None)
        told.append(delivery.lost.facts["reason"])

    def consume() -> None:
        with pytest.raises(ClientClosed):
            client.mailbox.run("closing", handle, concurrency=2)
        told.append("closed")

    consuming = threading.Thread(target=consume)
    consuming.start()
    assert working.wait(80)
    client.close()
    consuming.join(80)

    assert told == ["client_closed", "closed"]


def test_a_closed_client_says_so(node: NodeProcess) -> None:
    with sync.connect(node.ready["data_dir"]) as client:
        client.mailbox.topics()
    client.close()

    with pytest.raises(Canceled):
        client.mailbox.topics()


def test_ctrl_c_ends_a_run_after_what_is_worked_on(node: NodeProcess) -> None:
    """A signal reaches the main thread, which waits; handlers in their threads finish and ack."""
    script = """
        import sys, threading
        from penstock.client import sync

        def handle(delivery):
            print("began", flush=True)
            threading.Event().wait(1.0)
            print("finished", flush=True)

        try:
            with sync.connect(sys.argv[1]) as client:
                client.mailbox.send("ctrl-c", "x")
                client.mailbox.run("ctrl-c", handle, concurrency=2)
        except KeyboardInterrupt:
            print("interrupted", threading.active_count(), flush=True)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), node.ready["data_dir"]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "began\n"
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=80)
        finally:
            process.kill()

    assert out == "finished\ninterrupted 1\n"
    with sync.connect(node.ready["data_dir"]) as client:
        assert "ctrl-c" not in {stats.topic for stats in client.mailbox.topics()}


def test_a_handler_is_finished_also_when_ctrl_c_came_while_its_thread_started(
    client: sync.SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool does not know a thread whose start was interrupted, so nobody else waits for it."""
    began, finished, start = threading.Event(), threading.Event(), threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name.startswith("handler-"):
            assert began.wait(60)
            raise KeyboardInterrupt

    def handle(_delivery: sync.SyncDelivery) -> None:
        began.set()
        threading.Event().wait(0.3)
        finished.set()

    client.mailbox.send("interrupted", "x")
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        client.mailbox.run("interrupted", handle, concurrency=2)

    assert finished.is_set()
    assert "interrupted" not in {stats.topic for stats in client.mailbox.topics()}
