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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.client import LeaseLost, MailboxClient, PassportClient, StorageClient, sync
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
    told = threading.Event()

    def work() -> None:
        with delivery:
            client.mailbox.nack(delivery, delay_ms=60_000)
            for _ in range(1000):
                if delivery.lost is not None or told.wait(0.01):
                    break

    with pytest.raises(LeaseLost):
        work()


def test_handlers_run_in_threads_and_keep_their_leases(client: sync.SyncClient) -> None:
    for n in range(8):
        client.mailbox.send("work", str(n))
    consumer = client.mailbox.consume("work", concurrency=4, visibility_ms=800)
    barrier, done, names = threading.Barrier(4), [], set()

    def handle(delivery: sync.SyncDelivery) -> None:
        barrier.wait(10)
        names.add(threading.current_thread().name)
        threading.Event().wait(1.2)  # longer than the lease
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
