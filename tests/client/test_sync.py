"""The blocking face: the same results and errors, from any thread, and no thread left behind."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.client import ClientClosed, LeaseLost, MailboxClient, PassportClient, StorageClient, sync
from penstock.client.loop_thread import LoopThread
from penstock.kernel.errors import Busy, Canceled, Malformed, NotFound, Timeout
from penstock.kernel.metrics import Metrics
from tests.acceptance.node_process import NodeProcess


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory):
    with NodeProcess(data_dir=tmp_path_factory.mktemp("node")) as running:
        yield running


@pytest.fixture
def client(node: NodeProcess):
    before = threading.active_count()
    with sync.connect(node.ready["data_dir"]) as opened:
        yield opened
    assert threading.active_count() == before


def wait_until(came: Callable[[], bool]) -> None:
    """Look again and again, as a handler that works would, for as long as the slowest machine takes."""
    for _ in range(3000):
        if came() or threading.Event().wait(0.01):
            return


@pytest.mark.parametrize(
    ("face", "service"),
    [(sync.SyncMailbox, MailboxClient), (sync.SyncPassport, PassportClient), (sync.SyncStorage, StorageClient)],
)
def test_the_blocking_face_has_the_same_methods(face: type, service: type) -> None:
    streams = {"put_stream", "open"}
    wanted = {name for name in vars(service) if not name.startswith("_")} - streams

    assert {name for name in vars(face) if not name.startswith("_")} == wanted
    assert inspect.getdoc(face.__dict__[min(wanted)])


def test_results_and_errors_are_the_same(client: sync.SyncClient) -> None:
    sent = client.mailbox.send("blocking", "x")
    [got] = client.mailbox.recv("blocking", wait_ms=1000)
    client.mailbox.ack(got)

    assert got.msg_id == sent.msg_id
    assert client.passport.issue("ada", "svc-mailbox", caveats=["op=send"]).caveats == ("op=send",)
    with pytest.raises(NotFound):
        client.mailbox.topic("nobody")
    with pytest.raises(Malformed):
        client.mailbox.send("not a topic!", "x")
    assert list(client.mailbox.dead_letters("blocking")) == []


def test_many_threads_may_call_at_once(client: sync.SyncClient) -> None:
    with ThreadPoolExecutor(8) as threads:
        sent = set(threads.map(lambda n: client.mailbox.send("threads", str(n)).msg_id, range(200)))
        taken = [message for _ in range(10) for message in client.mailbox.recv("threads", max_messages=20)]
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
    [again] = client.mailbox.recv("block", wait_ms=5000)
    assert (again.payload, again.attempt) == (b"bad", 2)


def test_a_lost_lease_is_seen_and_comes_out_of_the_block(client: sync.SyncClient) -> None:
    client.mailbox.send("lost", "x")
    delivery = next(iter(client.mailbox.consume("lost", visibility_ms=300)))

    def work() -> None:
        with delivery:
            client.mailbox.nack(delivery, delay_ms=60_000)
            wait_until(lambda: delivery.lost is not None)

    with pytest.raises(LeaseLost):
        work()


def test_handlers_run_in_threads_and_keep_their_leases(client: sync.SyncClient) -> None:
    for n in range(8):
        client.mailbox.send("work", str(n))
    consumer = client.mailbox.consume("work", concurrency=4, visibility_ms=2500)
    barrier, done, names = threading.Barrier(4), [], set()

    def handle(delivery: sync.SyncDelivery) -> None:
        barrier.wait(60)
        names.add(threading.current_thread().name)
        threading.Event().wait(3.2)  # longer than the lease, which is long enough to be renewed on a busy machine
        done.append((delivery.payload, delivery.attempt))
        if len(done) == 8:
            consumer.stop()

    consumer.run(handle)

    assert sorted(done) == [(str(n).encode(), 1) for n in range(8)]
    assert len(names) == 4


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
    assert "handler.failed" in [record.message for record in caplog.records]


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
    consuming.join(10)
    ended = list(told)
    consumer.stop()
    consuming.join(10)

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
    assert working.wait(10)
    client.close()
    consuming.join(10)

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
            out, _ = process.communicate(timeout=20)
        finally:
            process.kill()

    assert out == "finished\ninterrupted 1\n"
    with sync.connect(node.ready["data_dir"]) as client:
        assert "ctrl-c" not in {stats.topic for stats in client.mailbox.topics()}


# --- the thread


@pytest.fixture
def thread():
    loop = LoopThread("test-loop", Metrics("test"), calls_max=4)
    yield loop
    loop.close()
    assert "test-loop" not in {each.name for each in threading.enumerate()}


async def forever() -> None:
    await asyncio.Event().wait()


async def answer() -> int:
    return 42


def test_too_many_calls_at_once_are_refused(thread: LoopThread) -> None:
    calls = [thread.submit(forever) for _ in range(4)]

    with pytest.raises(Busy):
        thread.call(answer, 5)
    for call in calls:
        call.cancel()


def test_whoever_gives_up_takes_his_call_with_him(thread: LoopThread) -> None:
    for _ in range(10):
        with pytest.raises(Timeout):
            thread.call(forever, 0.001)
    # Were one of them still running, there would be no place for this one.
    assert thread.call(answer, 5) == 42


def test_a_call_given_up_before_its_turn_is_never_begun(thread: LoopThread) -> None:
    begun: list[int] = []
    free, held = threading.Event(), threading.Event()

    async def hold() -> None:
        held.set()
        free.wait(5)

    async def begin() -> None:
        begun.append(1)

    holding = thread.submit(hold)
    held.wait(5)
    thread.submit(begin).cancel()
    free.set()
    thread.result(holding, 5)

    assert (thread.call(answer, 5), begun) == (42, [])


def test_closing_cancels_what_runs(thread: LoopThread) -> None:
    waiting = thread.submit(forever)
    thread.close()

    with pytest.raises(Canceled):
        thread.result(waiting, 5)
    with pytest.raises(Canceled):
        thread.call(answer, 5)


def test_a_call_that_comes_as_the_thread_ends_is_answered_or_refused_never_left(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look whether it is open and the call reaching the loop, another thread closes."""
    hand_over = thread._loop.call_soon_threadsafe
    closing = threading.Thread(target=thread.close)

    def after_a_close(*work) -> None:
        monkeypatch.undo()
        closing.start()
        closing.join(0.3)
        hand_over(*work)

    monkeypatch.setattr(thread._loop, "call_soon_threadsafe", after_a_close)
    call = thread.submit(answer)
    closing.join(10)

    assert isinstance(call.exception(5), ClientClosed) or call.result() == 42


def test_any_number_of_threads_may_close(thread: LoopThread) -> None:
    closers = [threading.Thread(target=thread.close) for _ in range(5)]
    for each in closers:
        each.start()
    for each in closers:
        each.join(10)

    assert not any(each.is_alive() for each in closers)
    assert not thread._thread.is_alive(), "whoever closes waits until it is closed"


def test_a_call_under_way_at_the_close_hears_of_it(thread: LoopThread) -> None:
    waiting, closed_in_time = thread.submit(forever), threading.Event()

    async def at_end() -> None:
        closed_in_time.set()

    thread.at_end = at_end
    thread.close()

    with pytest.raises(ClientClosed):
        thread.result(waiting, 5)
    assert closed_in_time.is_set(), "what lives on the loop is closed before it ends"


def test_a_loop_that_cannot_begin_says_why_at_once() -> None:
    script = """
        import resource
        from penstock.client import sync
        resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))
        try:
            sync.connect("/nowhere")
        except OSError as error:
            print(error.strerror)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    assert done.stdout == "Too many open files\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_told_instead_of_left_hanging(tmp_path: Path) -> None:
    script = """
        import os, sys
        from penstock.client.loop_thread import LoopThread
        from penstock.kernel.errors import Canceled
        from penstock.kernel.metrics import Metrics
        async def answer(): return 42
        thread = LoopThread("t", Metrics("t"))
        if os.fork() == 0:
            try:
                thread.call(answer, 5)
            except Canceled:
                os._exit(7)
            os._exit(1)
        sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)]

    assert subprocess.run(command, timeout=20, check=False).returncode == 7
