"""What the steps of the tour share: names, clients and tokens, what is printed, and the tidying up."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.cli.asking import print_json
from penstock.kernel.deadline import timeout
from penstock.kernel.errors import NotFound, PenstockError
from penstock.sdk import Client, SdkOptions

if TYPE_CHECKING:
    from penstock.cli.console import Console
    from penstock.sdk.remote_place import NodePlace

_STEP_S: Final = 60.0
_TIDY_S: Final = 15.0
_LATE_SENDS_S: Final = 0.25
_DID_CHARS: Final = 62


@dataclass(frozen=True, slots=True)
class TourStep:
    """One thing the tour shows, on a node that has these services."""

    title: str
    act: Callable[[TourContext, Client], Awaitable[None]]
    needs: tuple[str, ...]


class TourOutput:
    """What is printed, and the count of what was not as it should be."""

    def __init__(self, *, as_json: bool) -> None:
        self._json = as_json
        self._title = ""
        self._console: Console | None = None
        self.checks = 0
        self.surprises = 0

    def begin(self, number: int, title: str) -> None:
        """Announce a step."""
        self._title = title
        if not self._json:
            self._print(f"\n{number}. {title}", "bold")

    def check(self, did: str, came_back: str, *, ok: bool, should: str = "") -> None:
        """Say what was done, what came back, and whether that is what it should be."""
        self.checks += 1
        self.surprises += not ok
        if self._json:
            print_json({"step": self._title, "did": did, "came_back": came_back, "ok": ok, "should": should})
            return
        more = f"   SURPRISE: should be {should}" if not ok else ""
        self._print(f"   {'ok' if ok else '!!'}  {did:<{_DID_CHARS}} -> {came_back}{more}", "" if ok else "bold red")

    def end(self, steps: int) -> None:
        """Sum up."""
        ok = self.surprises == 0
        if self._json:
            print_json({"event": "done", "ok": ok, "steps": steps, "checks": self.checks, "surprises": self.surprises})
        else:
            verdict = "everything as it should be" if ok else f"{self.surprises} not as it should be"
            self._print(f"\n{steps} steps, {self.checks} checks: {verdict}", "bold green" if ok else "bold red")

    def _print(self, text: str, style: str) -> None:
        if self._console is None:
            from penstock.cli.console import Console

            self._console = Console()
        self._console.print(text, style=style or None, markup=False, highlight=False, soft_wrap=True)
        sys.stdout.flush()


class TourContext:
    """What the steps share."""

    def __init__(self, place: NodePlace, *, as_json: bool, patience: float = 1.0) -> None:
        """Use names of the tour's own, so that nothing else on the node is touched; `patience` stretches its times."""
        self.patience = patience
        self.name = f"tour-{secrets.token_hex(4)}"
        self.subject = f"penstock-{self.name}"
        self.show = TourOutput(as_json=as_json)
        self._place = place
        self._topics: set[str] = set()
        self._issued = False

    # --- for steps

    def topic(self, name: str) -> str:
        """Name a topic of the tour's own; it is emptied at the end."""
        topic = f"{self.name}/{name}"
        self._topics.add(topic)
        return topic

    async def mint(self, client: Client, audience: str, *caveats: str) -> str:
        """Issue a token of the tour's own; it is revoked at the end."""
        self._issued = True
        return (await client.passport.issue(self.subject, audience, caveats=caveats, ttl_s=300)).token

    def holder(self, token: str) -> Client:
        """Return a client that holds this token."""
        return Client(self._place.holding(token), SdkOptions())

    def check(self, did: str, came_back: object, should: object) -> None:
        """Compare what came back with what should."""
        self.show.check(did, str(came_back), ok=came_back == should, should=str(should))

    def told(self, did: str, came_back: str, *, ok: bool, should: str) -> None:
        """Say what came back in words, and whether it is right."""
        self.show.check(did, came_back, ok=ok, should=should)

    async def refused(self, did: str, asked: Awaitable[object], code: str) -> None:
        """Ask for something that must not be given."""
        try:
            given = await asked
        except PenstockError as error:
            reason = error.facts.get("reason")
            said = f"refused: {error.status} {error.code}{f', {reason}' if reason else ''}"
            self.show.check(did, said, ok=error.code == code, should=code)
        else:
            self.show.check(did, f"given: {type(given).__name__}", ok=False, should=code)

    # --- around them

    async def walk(self, number: int, step: TourStep, client: Client) -> None:
        """Do one step; an error nobody expected is a surprise, and the tour goes on."""
        self.show.begin(number, step.title)
        try:
            async with timeout("step", _STEP_S * self.patience):
                await step.act(self, client)
        except PenstockError as error:
            self.show.check(step.title, f"{error.code}: {error.detail}", ok=False, should="no error")

    async def tidy(self, client: Client) -> None:
        """Empty the tour's topics, dead letters too, and revoke its tokens."""
        try:
            async with timeout("tidy", _TIDY_S * self.patience):
                await self._empty_all(client)
                # A send that was cut by Ctrl-C may still be on its way to the disk.
                await asyncio.sleep(_LATE_SENDS_S)
                await self._empty_all(client)
                if self._issued:
                    await client.passport.revoke(subject_ref=self.subject, reason="the tour is over")
        except PenstockError as error:
            self.show.check("tidy up", f"{error.code}: {error.detail}", ok=False, should="nothing left behind")

    async def _empty_all(self, client: Client) -> None:
        for topic in sorted(self._topics):
            await _empty(client, topic)


async def _empty(client: Client, topic: str) -> None:
    """Purge a topic; its dead letters are sent back first, because a purge leaves them as evidence."""
    while True:
        try:
            stats = await client.mailbox.topic(topic)
        except NotFound:
            return
        if stats.dlq:
            await client.mailbox.reprocess(topic, limit=100_000)
            await asyncio.sleep(0.05)  # lint: allow PK010 within the time of `tidy`
        await client.mailbox.purge(topic)
