"""One service of a node over HTTP: capability, deadline, retries, and errors that are ours.

What may be repeated is repeated by the HTTP client of `net.calls`, a few times and within its retry budget. This layer
adds what only the SDK knows: a refusal did nothing, so any call may be repeated after it; a node that restarted may
listen elsewhere; a token may have been replaced; and how long a node is worth waiting for:

| the node | a call that may be repeated |
|---|---|
| has answered this client before | is tried until its deadline: the node restarts, and will be back |
| has never answered | is tried `MAX_TRIES` times, in less than a second: the address is wrong, or nothing runs |

`tries_max` sets another number of tries for both. A call whose token was refused is made once more when there is a
newer one: nothing was done, and that is no try that failed.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from penstock.contracts.call import NOBODY, Call
from penstock.kernel.backoff import CALLS, MAILBOX, MAX_TRIES, Backoff, FullJitter, Rng
from penstock.kernel.breaker import BreakerPolicy
from penstock.kernel.deadline import current_deadline, timeout
from penstock.kernel.errors import (
    Canceled,
    DownstreamUnavailable,
    Expired,
    Malformed,
    NotFound,
    PenstockError,
    Unauthenticated,
)
from penstock.kernel.inventory import Inventory
from penstock.kernel.resource import Resource
from penstock.net.calls.client import (
    Answer,
    CallOptions,
    ClientOptions,
    HttpClient,
    StreamAnswer,
)
from penstock.net.calls.connection import ClientConnection
from penstock.net.calls.drive_task import RetryPauses, TryAgain, drive
from penstock.net.calls.origin import HttpOrigin
from penstock.net.calls.plan import AT_ONCE, FINAL, Act, CallPlan, CallRules, TryOutcome
from penstock.net.calls.pool import Dial, SocketDial
from penstock.sdk.errors import ClientClosed, NoNode, NoToken
from penstock.sdk.first_contact import may_be_tls, says_wrong_place, speaks_tls
from penstock.sdk.problems import raised
from penstock.sdk.reach_hints import NO_ROUTE, reach_hint, url_hint
from penstock.sdk.remote_place import NodePlace, RemotePlace
from penstock.sdk.values import in_words

T = TypeVar("T")

JSON: Final = b"application/json"
# Refused before anything was done: any call may be made again after one of these.
REFUSALS: Final = frozenset({"busy", "rate_limited", "not_ready", "backpressure"})
_HOW_TO_GIVE_ONE: Final = (
    "Give connect token= or token_file=, or set PENSTOCK_TOKEN_FILE (penstock token issue makes a token)."
)
_PROBLEM_BYTES_MAX: Final = 64 << 10
_encode: Final = msgspec.json.Encoder().encode
# Producers are many and fail together: their retries are spread from nothing at all to the whole window.
_BACKOFF: Final[dict[str, Backoff]] = {"mailbox": MAILBOX}
# Between the tries of a call that waits for a node to come back. The deadline bounds them, not their number.
_WAITING: Final = FullJitter(0.2, cap_s=2.0)
_TRIES_WAITING: Final = 10_000
# A node that fails is left alone for a second, not longer: a call has ten, and wants to see it come back.
_BREAKER: Final = BreakerPolicy(open_s=1.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class SdkOptions:
    """The bounds of a client; every call ends within `timeout_s`, retries included (a recv: plus its own wait)."""

    timeout_s: float = 10.0
    connections_max: int = 64
    # None: until the deadline once the node has answered this client, and three times before.
    tries_max: int | None = None
    # How long one read may take: above the longest poll, because the call's own deadline is what counts.
    read_timeout_s: float = 30.0
    answer_bytes_max: int = 64 << 20
    # None: what the node's data directory says, else the system's authorities.
    tls: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        """Refuse a bound that no call could be made within, by its name."""
        for name in ("timeout_s", "read_timeout_s"):
            seconds: object = getattr(self, name)
            if not isinstance(seconds, int | float) or not seconds > 0:
                raise Malformed(f"SdkOptions: {name} is a number of seconds above 0, not {seconds!r}.")
        for name in ("connections_max", "tries_max", "answer_bytes_max"):
            count: object = getattr(self, name)
            if (count is not None or name != "tries_max") and (not isinstance(count, int) or count < 1):
                raise Malformed(f"SdkOptions: {name} is a whole number from 1 on, not {count!r}.")
        tls: object = self.tls
        if not isinstance(tls, ssl.SSLContext | None):
            raise Malformed(f"SdkOptions: tls is an ssl.SSLContext, not {tls!r}.")


def checked_options(options: object) -> SdkOptions | None:
    """Return the options that somebody gave, or None; anything else is refused in a sentence."""
    if isinstance(options, SdkOptions | None):
        return options
    raise Malformed(f"options is SdkOptions(timeout_s=3), not {in_words(options)}.")


class PreparedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call, before it knows where it goes."""

    path: str
    method: str = "POST"
    body: bytes | AsyncIterator[bytes] = b""
    body_bytes: int | None = None
    kind: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    # Safe to do twice.
    idempotent: bool = False
    # Time on top of the client's own, for a call that is meant to wait.
    wait_s: float = 0.0
    call: Call = NOBODY


def post(path: str, value: object, call: Call, *, idempotent: bool = False, wait_s: float = 0.0) -> PreparedCall:
    """Ask with a JSON body."""
    return PreparedCall(path=path, body=_encode(value), idempotent=idempotent, wait_s=wait_s, call=call)


class NodeMet:
    """Whether the node has answered this client: all its callers share what one of them knows."""

    __slots__ = ("yes",)

    def __init__(self) -> None:
        self.yes = False


class Caller(Resource):
    """Calls one service. Nothing is dialled before the first call."""

    def __init__(  # noqa: PLR0913 - what the callers of a client share
        self,
        service: str,
        place: NodePlace,
        inventory: Inventory,
        options: SdkOptions | None = None,
        dial: Dial | None = None,
        *,
        met: NodeMet | None = None,
    ) -> None:
        """Name the service; where it is, `place` knows."""
        self.service = service
        self.options = options or SdkOptions()
        self._place = place
        self._inventory = inventory
        self._dial = dial
        self._http: HttpClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._socket: SocketDial | None = None
        self._socket_tls: ssl.SSLContext | None = None
        # Closed for good; a caller that was never used has nothing open, and must not open it afterwards.
        self._over = False
        self._rng: Rng = random.SystemRandom()
        self._met = met or NodeMet()
        # Why the node could not be spoken to the last time.
        self._last_failure = ""
        self._tries_max = self.options.tries_max or MAX_TRIES
        backoff = _BACKOFF.get(service, CALLS)
        self._rules = CallRules(rng=self._rng, tries_max=self._tries_max, backoff=backoff)
        self._waiting_rules = CallRules(rng=self._rng, tries_max=_TRIES_WAITING, backoff=_WAITING)
        self._pauses = RetryPauses()

    async def json(self, ask: PreparedCall, kind: type[T]) -> T:
        """Call, and read the answer as `kind`."""
        return await self.parsed(ask, lambda answer: answer.json(kind))

    async def parsed(self, ask: PreparedCall, read: Callable[[Answer], T]) -> T:
        """Call, and read the answer by `read`, which raises when no node can have given it."""
        answer = await self._answer(ask)
        try:
            found = read(answer)
        except DownstreamUnavailable as error:
            url = f"{self._place.url(self.service)}{ask.path}"
            said = "This is not a penstock node, or one of another version: its answer cannot be read."
            facts = {"url": f"{ask.method} {url}", "hint": url_hint(said)}
            unread = DownstreamUnavailable(said, status=502, **facts)
            self._note_wrong_place(unread)
            raise unread from error
        self._met.yes = True
        return found

    async def ask(self, ask: PreparedCall) -> Answer:
        """Call and return a good answer, whatever it holds; anything else is raised as the error it is."""
        answer = await self._answer(ask)
        self._met.yes = True
        return answer

    async def _answer(self, ask: PreparedCall) -> Answer:
        async with timeout(f"{self.service}_call", self.options.timeout_s + ask.wait_s):
            waits = self._met.yes and self.options.tries_max is None
            rules = self._waiting_rules if waits else self._rules
            plan = CallPlan(rules, current_deadline(), repeatable=isinstance(ask.body, bytes))
            return await drive(lambda: self._try(ask, plan, waits=waits), self._pauses.pause)

    async def _try(self, ask: PreparedCall, plan: CallPlan, *, waits: bool) -> Answer | TryAgain:
        plan.begin()
        try:
            return await self._with_token(ask, self._once)
        except PenstockError as error:
            await self._look_for_tls(error)
            self._note_wrong_place(error)
            step = plan.after(self._judged(ask, error, waits=waits), asyncio.get_running_loop().time())
            if step.act is not Act.TRY:
                raise
            return TryAgain(step.delay_s)

    @asynccontextmanager
    async def stream(self, ask: PreparedCall) -> AsyncIterator[StreamAnswer]:
        """Call and hand the answer out as it comes; each piece has `read_timeout_s`."""
        async with AsyncExitStack() as opened:

            async def begin(ask: PreparedCall, token: str) -> StreamAnswer:
                return await opened.enter_async_context(self._stream_once(ask, token))

            yield await self._with_token(ask, begin)

    async def _with_token(self, ask: PreparedCall, act: Callable[[PreparedCall, str], Awaitable[T]]) -> T:
        """Make a call; if the node refuses its token and there is another by now, make it once more with that."""
        used = ask.call.capability or self._place.token()
        try:
            return await act(ask, used)
        except (Unauthenticated, Expired) as refused:
            newer = "" if ask.call.capability else self._newer_token(used, refused)
            if not newer:
                raise
            if not isinstance(ask.body, bytes):
                # Its pieces are gone. Whoever gets this knows that the same call has a good token next time.
                refused.facts.update(token_replaced=True, hint="The token was replaced meanwhile: call again.")
                raise
        return await act(ask, newer)

    def _newer_token(self, used: str, refused: PenstockError) -> str:
        """Return a token other than the refused one, or nothing; another call may have found it already."""
        try:
            if self._place.token() == used:
                self._place.renew_token()
        except NoToken as unread:
            refused.facts["hint"] = f"No newer token was found: {unread.detail}"
            refused.__cause__ = unread
            return ""
        token = self._place.token()
        return token if token != used else ""

    @asynccontextmanager
    async def _stream_once(self, ask: PreparedCall, token: str) -> AsyncIterator[StreamAnswer]:
        url, said = self._said(ask, token)
        with self._closing_told(), self._named(ask.method, url):
            async with self._client().stream(ask.method, url, **said) as answer:
                if answer.status >= 400:
                    async with timeout("problem", self.options.timeout_s):
                        raise raised(answer.status, await answer.read(_PROBLEM_BYTES_MAX), answer.headers)
                yield answer

    async def _once(self, ask: PreparedCall, token: str) -> Answer:
        url, said = self._said(ask, token)
        with self._closing_told(), self._named(ask.method, url):
            answer = await self._client().request(ask.method, url, **said)  # lint: allow PK009 `ask` holds the deadline
            if answer.status >= 400:
                raise raised(answer.status, answer.body, answer.headers)
        return answer

    @contextmanager
    def _named(self, method: str, url: str) -> Iterator[None]:
        """Write into an error which call it belongs to, and what to do about a node that cannot be spoken to."""
        try:
            yield
        except PenstockError as error:
            error.facts.setdefault("url", f"{method} {url}")
            if isinstance(error, Unauthenticated) and error.facts.get("reason") == "missing":
                error.facts["hint"] = _HOW_TO_GIVE_ONE
            if isinstance(error, DownstreamUnavailable | NotFound):
                self._advise(error)
            raise

    async def _look_for_tls(self, error: PenstockError) -> None:
        """Find out whether a port that hung up wants TLS: then the URL is wrong, and says so."""
        if self._met.yes or self._dial is not None or not may_be_tls(error, url := self._place.url(self.service)):
            return
        if await speaks_tls(url):
            error.detail = f"{self.service} at {url} is out of reach: the connection ended before an answer."
            error.facts.update(hint="That port speaks TLS: write https://.", wrong_place=True)

    def _note_wrong_place(self, error: PenstockError) -> None:
        """Mark a failure that no waiting mends, as long as nothing was ever answered."""
        if not self._met.yes and says_wrong_place(error):
            error.facts["wrong_place"] = True

    def _advise(self, error: PenstockError) -> None:
        base = self._place.url(self.service)
        if error.detail.startswith(f"{self.service} is out of reach"):
            error.detail = error.detail.replace(self.service, f"{self.service} at {base}", 1)
        self._say_why_left_alone(error)
        by_url = isinstance(self._place, RemotePlace)
        hint = reach_hint(error.detail) or (url_hint(error.detail) if by_url else "")
        # A path that the SDK asked for was not misspelt by anybody: what the listener says about that is no help.
        if hint and (error.detail == NO_ROUTE or "hint" not in error.facts):
            error.facts["hint"] = hint

    def _say_why_left_alone(self, error: PenstockError) -> None:
        """Say of a node that is left alone for a moment what it failed by: that is what can be mended."""
        if not isinstance(error, DownstreamUnavailable):
            return
        if error.detail == f"{self.service} failed too often and is left alone.":
            error.detail = self._last_failure or error.detail
        else:
            self._last_failure = error.detail

    @contextmanager
    def _closing_told(self) -> Iterator[None]:
        """Say that it was our closing that cut a call; a body that its own source gave up on says so itself."""
        try:
            yield
        except Canceled as cut:
            if self._over:
                raise ClientClosed from cut
            raise

    def _said(self, ask: PreparedCall, token: str) -> tuple[str, CallOptions]:
        headers = [*ask.headers, (b"Content-Type", ask.kind)] if ask.body else list(ask.headers)
        if token:
            headers.append((b"Authorization", b"Bearer " + token.encode("ascii", "replace")))
        headers.append((b"X-Deadline-Ms", b"%d" % self._left_ms(ask)))
        said = CallOptions(
            headers=headers, body=ask.body, timeout_s=self.options.timeout_s + ask.wait_s, idempotent=ask.idempotent
        )
        if ask.call.corr_id:
            said["corr_id"] = ask.call.corr_id
        if ask.body_bytes is not None:
            said["body_bytes"] = ask.body_bytes
        return self._place.url(self.service) + ask.path, said

    def _left_ms(self, ask: PreparedCall) -> int:
        """Return how long the answer is of use: a gateway gives up by it, instead of by its own default."""
        deadline, whole_s = current_deadline(), self.options.timeout_s + ask.wait_s
        left_s = whole_s if deadline is None else deadline.remaining(asyncio.get_running_loop().time())
        return max(1, round(1000 * min(left_s, whole_s)))

    def _client(self) -> HttpClient:
        if self._over:
            raise ClientClosed
        if self._http is None:
            options = self.options
            bounds = ClientOptions(
                service=self.service,
                op=self.service,
                connections_max=options.connections_max,
                waiters_max=4 * options.connections_max,
                timeout_s=options.timeout_s,
                read_timeout_s=options.read_timeout_s,
                body_bytes_max=options.answer_bytes_max,
                tries_max=self._tries_max,
                breaker=_BREAKER,
                retry_statuses=frozenset((429, 502, 503, 504)),
                tls=options.tls,
            )
            self._http = HttpClient(self._inventory, bounds, rng=self._rng, dial=self._dial or self._dial_now)
            self._loop = asyncio.get_running_loop()
            self.opened(f"client of {self.service}")
        self._check_loop()
        return self._http

    def _check_loop(self) -> None:
        if self._loop is not asyncio.get_running_loop():
            raise RuntimeError("a client belongs to the loop it was first used on: make one in each asyncio.run()")

    async def _dial_now(self, origin: HttpOrigin, connection: ClientConnection) -> None:
        """Dial by what is known now: a certificate that the node changed is believed from the next connection on."""
        try:
            tls = self.options.tls or self._place.context(self.service)
        except Malformed as unusable:
            # Of a node's own configuration: whoever called that node did nothing wrong.
            refusal = DownstreamUnavailable(unusable.detail)
            refusal.facts.update(unusable.facts)
            raise refusal from unusable
        if self._socket is None or self._socket_tls is not tls:
            self._socket, self._socket_tls = SocketDial(tls), tls
        await self._socket(origin, connection)

    def _judged(self, ask: PreparedCall, error: PenstockError, *, waits: bool) -> TryOutcome:
        """Judge what a try came to, beyond what the HTTP client has mended already."""
        if self._found_anew(ask, error):
            return AT_ONCE
        # What may be repeated was repeated below as often as it should, unless it is worth waiting for.
        mendable = waits and _passes(error) if ask.idempotent else error.code in REFUSALS
        if not mendable:
            return FINAL
        hint = error.facts.get("retry_after")
        return TryOutcome(mendable=True, least_s=float(hint) if isinstance(hint, int | float) else 0.0)

    def _found_anew(self, ask: PreparedCall, error: PenstockError) -> bool:
        """Look again for a node that is out of reach, or in whose place another one answers."""
        refused = isinstance(error, NoNode) or (isinstance(error, Unauthenticated) and not ask.call.capability)
        if not refused and not isinstance(error, DownstreamUnavailable):
            return False
        return self._place.changed() and (refused or ask.idempotent)

    async def close(self) -> None:
        """End the connections, and refuse every call from now on."""
        self._over = True
        self._pauses.cut(ClientClosed())
        await super().close()

    async def _release(self) -> None:
        if self._http is not None:
            if self._loop is not None and self._loop.is_closed():
                self._check_loop()
            await self._http.close()


def _passes(error: PenstockError) -> bool:
    """Tell whether the node may soon answer otherwise; a call that its shutdown cut can be made again later."""
    return error.retryable or (isinstance(error, Canceled) and not isinstance(error, ClientClosed))
