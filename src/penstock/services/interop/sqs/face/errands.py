"""Calls to the mailbox on behalf of requests, without a task where that is possible.

An errand says what is asked of the mailbox and how its outcome is said. There are two ways to run one. The short one
is for a mailbox in the same process: the call is begun in the step of the request, and the `ErrandReply` that the
handler returns is kept in the step that brings the mailbox's answer, which for a send is the step of its commit. The
long one is a coroutine. It is taken when something has to be waited for before the call can begin, a passport for
instance, and when the mailbox is another process.

A receiver that waits holds a place among the waiters (`interop.sqs.waiters_max`) and nothing else. When the listener
that it came through drains, this service's own or a gateway's, it is answered with what it has: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.contracts.mailbox import (
    Ack,
    AckBatch,
    Extend,
    ExtendBatch,
    Received,
    Recv,
    Send,
    SendBatch,
)
from penstock.contracts.mailbox_prompt import LateAnswer, PromptMailbox
from penstock.kernel.deadline import Deadline, timeout
from penstock.kernel.errors import PenstockError
from penstock.kernel.lifecycle import until_drain
from penstock.net.message import Response
from penstock.net.promise import Promise

if TYPE_CHECKING:
    from penstock.contracts.call import Call
    from penstock.contracts.mailbox import Mailbox
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.lifecycle import Shutdown
    from penstock.services.interop.sqs.face.access_keys import AccessKey
    from penstock.services.interop.sqs.face.backing import SqsBacking

CALL_S: Final = 5.0
MARGIN_S: Final = 2.0
ErrandRequest = Send | SendBatch | Recv | Ack | AckBatch | Extend | ExtendBatch


class Errand(NamedTuple):
    """One call to the mailbox."""

    key: AccessKey
    # The right that it needs, and on which topic.
    op: str
    topic: str
    corr_id: str
    request: ErrandRequest
    # Turns what the mailbox answered, or the error it refused with, into the operation's answer; or raises.
    conclude: Callable[[Any], dict[str, Any]]
    # How long a receive waits for its first message.
    wait_s: int = 0

    @property
    def budget_s(self) -> float:
        """Return how long the call may take."""
        return self.wait_s + MARGIN_S if isinstance(self.request, Recv) else CALL_S


Conclude = Callable[[Errand, object], Response]
"""Writes the response of an errand from what the mailbox answered."""


class ErrandReply(Promise):
    """The response to a request, kept in the step in which the mailbox answers."""

    __slots__ = ("_conclude", "_errand", "_late", "_over")

    def __init__(
        self, errand: Errand, late: LateAnswer, conclude: Conclude, over: Callable[[ErrandReply], None]
    ) -> None:
        """Follow an answer of the mailbox that is still to come; `over` hears when nobody waits any more."""
        super().__init__()
        self._errand = errand
        self._late = late
        self._conclude = conclude
        self._over = over
        late.follow(self._kept)

    def _kept(self, result: object) -> None:
        self._over(self)
        try:
            self.resolve(self._conclude(self._errand, result))
        except Exception as error:  # noqa: BLE001  # lint: allow PK015 a step of the mailbox, which goes on: one 500
            self.resolve(error)

    def end(self, result: object) -> None:
        """Answer now, in place of the mailbox."""
        self._late.cancel()
        self._kept(result)

    def cancel(self) -> None:
        """Give up: the client is gone, or its time is over."""
        self._over(self)
        self._late.cancel()
        super().cancel()


class Errands:
    """Runs errands, and knows the receivers that wait."""

    def __init__(self, inventory: Inventory, backing: SqsBacking, waiters_max: int) -> None:
        """Declare how many receivers may wait."""
        self._backing = backing
        self._waiters = inventory.limiter("sqs_waiters", waiters_max)
        self._monotonic = inventory.clock.monotonic
        inventory.timeout("sqs_call", CALL_S, "503 ServiceUnavailable")
        # The receivers that wait, each with what takes it off its listener's drain; bounded by the limit on waiters.
        self._parked: dict[ErrandReply, Callable[[], None]] = {}

    def run(
        self, errand: Errand, conclude: Conclude, shutdown: Shutdown
    ) -> Response | ErrandReply | Coroutine[Any, Any, Response]:
        """Begin an errand; returns its response, a promise of it, or a coroutine. Refusals are raised.

        A drain that `shutdown` tells of ends its wait.
        """
        late = self._begin(errand)
        if late is None:
            return self._run_later(errand, conclude, shutdown)
        if late.done:
            if errand.wait_s:
                self._waiters.release()
            return conclude(errand, late.result)
        if not errand.wait_s:
            return ErrandReply(errand, late, conclude, _nothing)
        if shutdown.draining:
            late.cancel()
            self._waiters.release()
            return conclude(errand, Received(()))
        reply = ErrandReply(errand, late, conclude, self._over)
        self._parked[reply] = shutdown.on_drain(lambda: reply.end(Received(())))
        return reply

    # --- the short way ------------------------------------------------------------------------------------------------

    def _begin(self, errand: Errand) -> LateAnswer | None:
        """Begin the call, if nothing has to be waited for before."""
        prompt = self._backing.prompt
        call = self._backing.ready_call(errand.key, errand.op, errand.topic, errand.corr_id)
        if call is None or prompt is None:
            return None
        if not errand.wait_s:
            return _ask(prompt, errand, call, self._deadline(errand))
        self._waiters.acquire_or_busy()
        try:
            late = _ask(prompt, errand, call, self._deadline(errand))
        except PenstockError:
            self._waiters.release()
            raise
        if late is None:
            self._waiters.release()
        return late

    def _deadline(self, errand: Errand) -> Deadline:
        return Deadline.after(errand.budget_s, self._monotonic())

    def _over(self, reply: ErrandReply) -> None:
        if not reply.done:
            self._parked.pop(reply)()
            self._waiters.release()

    # --- the long way -------------------------------------------------------------------------------------------------

    async def _run_later(self, errand: Errand, conclude: Conclude, shutdown: Shutdown) -> Response:
        result: object
        try:
            call = await self._backing.call(errand.key, errand.op, errand.topic, errand.corr_id)
            result = await (self._wait(errand, call, shutdown) if errand.wait_s else self._call(errand, call))
        except PenstockError as error:
            result = error
        return conclude(errand, result)

    async def _call(self, errand: Errand, call: Call) -> object:
        async with timeout("sqs_call", errand.budget_s):
            return await _ask_and_wait(self._backing.mailbox, errand, call)

    async def _wait(self, errand: Errand, call: Call, shutdown: Shutdown) -> object:
        """Wait for the first message; the drain ends the wait, and the answer is then an empty one."""
        self._waiters.acquire_or_busy()
        try:
            async with until_drain(shutdown):
                return await self._call(errand, call)
            return Received(())
        finally:
            self._waiters.release()


def _nothing(_reply: ErrandReply) -> None:
    """Have nothing to give back."""


def _ask(prompt: PromptMailbox, errand: Errand, call: Call, deadline: Deadline) -> LateAnswer | None:
    match errand.request:
        case Send() as send:
            return prompt.send(send, call, deadline)
        case Recv() as recv:
            return prompt.recv(recv, call, deadline)
        case Ack() | Extend() as settlement:
            return prompt.settle(errand.op, settlement, call, deadline)
        case SendBatch() as batch:
            return prompt.send_batch(batch.messages, call, deadline)
        case AckBatch() as batch:
            return prompt.settle_batch(errand.op, batch.acks, call, deadline)
        case ExtendBatch() as batch:
            return prompt.settle_batch(errand.op, batch.extends, call, deadline)


async def _ask_and_wait(mailbox: Mailbox, errand: Errand, call: Call) -> object:
    match errand.request:
        case Send() as send:
            return await mailbox.send(send, call)
        case Recv() as recv:
            return await mailbox.recv(recv, call)
        case Ack() as ack:
            return await mailbox.ack(ack, call)
        case Extend() as extend:
            return await mailbox.extend(extend, call)
        case SendBatch() as sends:
            return (await mailbox.send_batch(sends, call)).results
        case AckBatch() as acks:
            return (await mailbox.ack_batch(acks, call)).results
        case ExtendBatch() as extends:
            return (await mailbox.extend_batch(extends, call)).results
