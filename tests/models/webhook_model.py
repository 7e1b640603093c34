"""Webhooks on the bridge's real code: intake, channel, worker, desk, calls and claims, under the real supervisor.

The providers, and the mailbox behind, are the model's own. A provider delivers its event again until it is answered,
and perhaps once more after that. The mailbox is the one in RAM; it stores in a task of its own, as a commit loop does,
so a call that was given up on may be stored later. At any moment the worker may be killed, the answer of the mailbox
may get lost, or the service may be told to drain.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from penstock import weave
from penstock.contracts import mailbox as m
from penstock.contracts.call import NOBODY, Call
from penstock.kernel.channel import Full
from penstock.kernel.child import ChildSpec, Drain
from penstock.kernel.clock import LoopClock
from penstock.kernel.deadline import Deadline
from penstock.kernel.errors import DownstreamUnavailable, PenstockError
from penstock.kernel.inventory import Inventory
from penstock.kernel.log import Log
from penstock.kernel.metrics import Metrics
from penstock.kernel.restart import RestartPolicy
from penstock.kernel.snapshot import Snapshot
from penstock.kernel.supervisor import Supervisor, SupervisorOptions
from penstock.kernel.worker import Job
from penstock.net.message import AcceptedJson
from penstock.net.promise import answer_of
from penstock.services.interop.authority import BridgeAuthority
from penstock.services.interop.brownout import Brownout
from penstock.services.interop.calls import BridgeCalls
from penstock.services.interop.config import InteropOptions
from penstock.services.interop.endpoint_topics import EndpointTopics
from penstock.services.interop.endpoints import WebhookEndpoint
from penstock.services.interop.intake import BridgeIntake
from penstock.services.interop.providers.verdict import WebhookRequest
from penstock.services.interop.records import BridgeRecords
from penstock.services.interop.webhooks import Behind, WebhookDesk
from penstock.services.interop.work import WebhookPromise
from penstock.services.interop.worker import BridgeWorker
from penstock.testing.contracts.memory_mailbox import MemoryMailbox
from tests.models.drain_model import Middle
from tests.services.interop.worlds import LISTENER, endpoints

IGNORES = (
    BridgeAuthority,
    BridgeRecords,
    Brownout,
    ChildSpec,
    Inventory,
    InteropOptions,
    Log,
    Metrics,
    RestartPolicy,
    SupervisorOptions,
    WebhookEndpoint,
)
"""They count, list, log or never change; nothing of the future depends on them."""

SECRET = "fake-secret"
WALL_S = 1_800_000_000.0
DEADLINE_S = 3.0


@dataclass
class Hooks:
    """What is seen of every delivery, in the words of Webhook.tla."""

    mailbox: SlowMailbox
    # How far the newest delivery of each event got inside.
    marks: dict[str, str] = field(default_factory=dict)
    promises: dict[str, list[WebhookPromise]] = field(default_factory=dict)

    def step(self, event: str) -> str:
        """Tell where the delivery of an event is."""
        waiting = [promise for promise in self.promises[event] if not promise.done]
        return self.marks[event] if waiting else "none"

    def answers(self, event: str) -> list[AcceptedJson]:
        """List the good answers to an event's deliveries."""
        return [promise.result for promise in self.promises[event] if isinstance(promise.result, AcceptedJson)]

    def view(self) -> dict[str, object]:
        """Show the state; faults and what consumers did are not shown."""
        return {
            "step": {event: self.step(event) for event in self.promises},
            "claimed": {event for event, count in self.mailbox.stored.items() if count},
            "stored": dict(self.mailbox.stored),
            "answered": {event for event in self.promises if self.answers(event)},
        }


class SlowMailbox(MemoryMailbox):
    """Stores one message after the other, in a task that outlives its caller; may lose an answer."""

    def __init__(self, events: tuple[str, ...]) -> None:
        super().__init__(LoopClock(WALL_S))
        self.stored = dict.fromkeys(events, 0)
        self.hooks: Hooks | None = None
        self.lose_next = False
        # Something was stored that its caller had given up on.
        self.late = False
        self.commits: set[asyncio.Task[Any]] = set()

    async def send_batch(self, request: m.SendBatch, call: Call = NOBODY) -> m.SentBatch:
        work = asyncio.get_running_loop().create_task(self._commit(request))
        self.commits.add(work)
        work.add_done_callback(self.commits.discard)
        answer: m.SentBatch = await asyncio.shield(work)
        if self.lose_next:
            self.lose_next = False
            raise DownstreamUnavailable("The answer got lost.")
        return answer

    async def _commit(self, request: m.SendBatch) -> m.SentBatch:
        results: list[m.SendResult] = []
        for send in request.messages:
            await asyncio.sleep(0)
            results += (await super().send_batch(m.SendBatch((send,)))).results
            self._seen(send)
        return m.SentBatch(tuple(results))

    def _seen(self, send: m.Send) -> None:
        event = event_of(send.payload)
        self.stored[event] = len(
            [each for each in self.state.messages.values() if event_of(each.sent.payload) == event]
        )
        assert self.hooks is not None
        if self.hooks.marks[event] == "verified" and self.hooks.step(event) == "verified":
            self.hooks.marks[event] = "sent"
        else:
            self.late = True
        weave.shown()


def event_of(payload: bytes) -> str:
    """Name the event of a message by its body."""
    return chr(payload[payload.index(b'"body":"') + 8])


class SeenDesk(WebhookDesk):
    """Shows where it is between two webhooks of a batch."""

    hooks: Hooks

    def _prepare(self, job):
        verified = super()._prepare(job)
        if verified is not None:
            self.hooks.marks[verified.body.decode()] = "verified"
        weave.shown()
        return verified

    def _answer(self, verified, outcome):
        super()._answer(verified, outcome)
        weave.shown()


class HastyDesk(SeenDesk):
    """Answers before the mailbox has the event: the planted bug."""

    async def _pass_on(self, group):
        for each in group:
            each.job.done(AcceptedJson(b"{}"))
            weave.shown()
        with suppress(PenstockError):
            await self._send(group)


class ClaimlessDesk(SeenDesk):
    """Sends without the claim: the planted bug."""

    @staticmethod
    def _event_of(job):
        found = WebhookDesk._event_of(job)
        return found._replace(send=m.Send(found.send.topic, found.send.payload))


DESKS = {"": SeenDesk, "hasty": HastyDesk, "claimless": ClaimlessDesk}


def signed(event: str) -> WebhookRequest:
    """Sign a body as GitHub does."""
    tag = hmac.new(SECRET.encode(), event.encode(), hashlib.sha256).hexdigest()
    return WebhookRequest([(b"x-hub-signature-256", f"sha256={tag}".encode())], event.encode())


@dataclass
class Bridge:
    """The bridge's own parts, and what is seen of them."""

    boss: Supervisor
    intake: BridgeIntake
    endpoint: WebhookEndpoint
    hooks: Hooks
    mailbox: SlowMailbox


def build(events: tuple[str, ...], planted: str) -> Bridge:
    """Put the parts together as the service does, without a listener."""
    inventory = Inventory("svc-interop", LoopClock(WALL_S))
    options = InteropOptions(listener=LISTENER, endpoints=endpoints({"github": {"secrets": (SECRET,)}}), rps=0)
    mailbox, brownout, records = SlowMailbox(events), Brownout(), BridgeRecords(inventory, options)
    hooks = mailbox.hooks = Hooks(mailbox, dict.fromkeys(events, "none"), {event: [] for event in events})
    work: Any = inventory.channel("work", Job, capacity=4, full=Full.REFUSE)
    calls = [BridgeCalls(inventory, name, 1.0, brownout, Middle()) for name in ("svc-mailbox", "svc-storage", "x")]
    authority = BridgeAuthority(inventory, None, None, calls[2])
    behind = Behind(EndpointTopics(inventory, mailbox, calls[0], authority), None, calls[1], authority)
    worker = BridgeWorker(inventory, behind, records, 1)
    worker._desk = DESKS[planted](behind, records, inventory.clock)
    worker._desk.hooks = hooks
    intake = BridgeIntake(inventory, options, Snapshot(options.endpoints), work, records=records, brownout=brownout)
    spec = ChildSpec("worker", lambda child: worker.run(child, work), drain=Drain.FINISH, consumes=(work,))
    boss = Supervisor(inventory, [spec], SupervisorOptions(drain_deadline_s=60.0), rng=Middle())
    return Bridge(boss, intake, options.endpoints["github"], hooks, mailbox)


async def webhooks(
    events: tuple[str, ...] = ("a",), faults: tuple[str, ...] = (), *, replays: int = 0, planted: str = ""
) -> str:
    """Deliver every event until it is answered, while the faults happen at any moment; nothing is left hanging."""
    bridge = build(events, planted)
    boss, hooks, mailbox = bridge.boss, bridge.hooks, bridge.mailbox
    with weave.still():
        await boss.start()
    weave.view(hooks.view)
    draining = asyncio.get_running_loop().create_future()
    happening = {
        "kill": lambda: boss.kill("worker"),
        "lose": lambda: setattr(mailbox, "lose_next", True),
        "drain": lambda: draining.set_result(None),
    }
    if faults == ("kill",) and not planted:
        weave.sometimes("a call that was given up on is stored", lambda: mailbox.late)
    for fault in faults:
        weave.event(happening[fault])

    async def provide(event: str) -> None:
        left = replays
        while not draining.done():
            deadline = Deadline.after(DEADLINE_S, asyncio.get_running_loop().time())
            hooks.marks[event] = "arrived"
            try:
                promise = bridge.intake.webhook(bridge.endpoint, signed(event), deadline, event)
            except PenstockError:
                return
            # A refusal or a duplicate's answer would be one at once; what is signed and new is promised.
            assert isinstance(promise, WebhookPromise)
            hooks.promises[event].append(promise)
            weave.shown()
            with suppress(PenstockError):
                await answer_of(promise)
            if hooks.answers(event):
                if not left:
                    return
                left -= 1

    async def drain() -> None:
        await draining
        report = await boss.drain()
        assert report.clean, f"cut off: {report.aborted}"

    jobs = [provide(event) for event in events]
    await asyncio.gather(*jobs, *([drain()] if "drain" in faults else []))
    with weave.still():
        await boss.drain()
        while mailbox.commits:
            await asyncio.wait(mailbox.commits)
    for event in events:
        ids = set(hooks.answers(event))
        assert mailbox.stored[event] <= 1, f"{event} is there {mailbox.stored[event]} times"
        assert not ids or mailbox.stored[event] == 1, f"{event} was answered and is not there"
        assert all(promise.done for promise in hooks.promises[event]), f"{event} waits for ever"
    return str({event: (len(hooks.answers(event)), mailbox.stored[event]) for event in events})
