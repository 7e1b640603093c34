"""A worker that gets SIGTERM or Ctrl-C finishes what it holds, takes nothing more, and ends without an error."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from penstock.client import sync
from penstock.sdk.stop_signals import stopping_on_signals
from tests.acceptance.node_process import NodeProcess

ASYNC = r"""
    import asyncio, sys
    from penstock.client import connect

    async def handle(delivery):
        sys.stdout.write(f"began {delivery.text()}\n"), sys.stdout.flush()
        await asyncio.sleep(1)
        sys.stdout.write(f"finished {delivery.text()}\n"), sys.stdout.flush()

    async def main():
        async with connect(sys.argv[1]) as client:
            await client.mailbox.run(sys.argv[2], handle, concurrency=2, stop_on_signals=True)
        print("returned", flush=True)

    asyncio.run(main())
"""
BLOCKING = r"""
    import sys, threading
    from penstock.client import sync

    def handle(delivery):
        sys.stdout.write(f"began {delivery.text()}\n"), sys.stdout.flush()
        threading.Event().wait(1)
        sys.stdout.write(f"finished {delivery.text()}\n"), sys.stdout.flush()

    with sync.connect(sys.argv[1]) as client:
        client.mailbox.run(sys.argv[2], handle, concurrency=2, stop_on_signals=True)
    print("returned", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("program", [ASYNC, BLOCKING], ids=["async", "blocking"])
def test_a_worker_finishes_what_it_holds_and_leaves_the_rest(node: NodeProcess, program: str, number: int) -> None:
    topic = f"signals/{len(program)}/{int(number)}"
    with sync.connect(node.ready["data_dir"]) as client:
        for n in range(5):
            client.mailbox.send(topic, str(n))
        command = [sys.executable, "-c", textwrap.dedent(program), node.ready["data_dir"], topic]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                first = {process.stdout.readline(), process.stdout.readline()}
                process.send_signal(number)
                out, err = process.communicate(timeout=80)
            finally:
                process.kill()
        lines = [*first, *out.splitlines(keepends=True)]
        began = {line.split()[1] for line in lines if line.startswith("began")}
        finished = {line.split()[1] for line in lines if line.startswith("finished")}

        assert (process.returncode, err, lines[-1], finished) == (0, "", "returned\n", began)
        stats = client.mailbox.topic(topic)
        assert (stats.ready + stats.delayed, stats.inflight) == (5 - len(began), 0)
        client.mailbox.delete_topic(topic)


def test_the_handlers_that_were_there_are_there_again() -> None:
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    stopped = []
    with stopping_on_signals(lambda: stopped.append(1), wanted=True):
        signal.raise_signal(signal.SIGTERM)
        again = {each: signal.getsignal(each) for each in before}

    assert (stopped, again) == ([1], before)
    assert {each: signal.getsignal(each) for each in before} == before


def test_another_thread_is_told_that_it_has_no_signals() -> None:
    told = []

    def elsewhere() -> None:
        with pytest.raises(RuntimeError, match="main thread"), stopping_on_signals(list, wanted=True):
            pass
        told.append(1)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(60)

    assert told == [1]
