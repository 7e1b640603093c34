"""The client of a node: its services, the connections they share, and one close for all of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NoReturn, Self

from penstock.kernel.inventory import Inventory
from penstock.kernel.resource import Resource
from penstock.sdk.calling import Caller, NodeMet, SdkOptions, checked_options
from penstock.sdk.dht import DhtClient
from penstock.sdk.finding import Whereabouts, find
from penstock.sdk.http_mailbox import HttpMailbox
from penstock.sdk.http_passport import HttpPassport
from penstock.sdk.interop import InteropClient
from penstock.sdk.joining.joined_mailbox import JoinedMailbox
from penstock.sdk.joining.timer_line import TimerLine
from penstock.sdk.lease_keeper import LeaseKeeper
from penstock.sdk.mailbox import MailboxClient
from penstock.sdk.passport import PassportClient
from penstock.sdk.remote_place import NodePlace
from penstock.sdk.storage import StorageClient


class Client(Resource):
    """A node's services: `mailbox`, `passport`, `storage`, `dht`, `interop`. Use it by `async with`, or close it."""

    def __init__(self, place: NodePlace, options: SdkOptions | None = None) -> None:
        """Nothing is dialled before the first call."""
        options = options or SdkOptions()
        self.place = place
        self.inventory = Inventory("client")
        met = NodeMet()
        self._callers = {
            name: Caller(name, place, self.inventory, options, met=met)
            for name in ("mailbox", "passport", "storage", "dht", "interop")
        }
        mailbox = self._joined = JoinedMailbox(HttpMailbox(self._callers["mailbox"]), self.inventory)
        self._keeper = LeaseKeeper(mailbox, self.inventory.metrics)
        seconds = options.timeout_s
        self._timers = TimerLine(seconds)
        self.mailbox = MailboxClient(
            mailbox, self._keeper, self.inventory.metrics, timeout_s=seconds, timers=self._timers
        )
        self.passport = PassportClient(HttpPassport(self._callers["passport"]), timeout_s=seconds)
        self.storage = StorageClient(self._callers["storage"])
        self.dht = DhtClient(self._callers["dht"])
        self.interop = InteropClient(self._callers["interop"])
        self.opened("penstock client")

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, *, options: SdkOptions | None = None) -> Self:
        """Find the node by the environment, else in `./.penstock`; see `finding`."""
        return cls(find(Whereabouts(tls=None if options is None else options.tls), environ), options)

    def __enter__(self) -> NoReturn:
        """Say how a client is used: `with` alone cannot await its close."""
        raise TypeError("write `async with connect(...)`, or without asyncio `with connect_sync(...)`")

    def __exit__(self, *_exc: object) -> None:
        """Be there, so that `with` gets as far as `__enter__`."""

    async def _release(self) -> None:
        """Close all parts. A cancel cuts one wait short, and the rest is closed all the same."""
        async with AsyncExitStack() as closing:
            # Last of all: until then calls may be under way.
            closing.callback(self._timers.close)
            for caller in self._callers.values():
                closing.push_async_callback(caller.close)
            closing.push_async_callback(self._joined.close)
            closing.push_async_callback(self._keeper.close)


def connect(  # noqa: PLR0913 - where the node is and as whom, each by its name
    where: Path | str | None = None,
    *,
    token: str | Callable[[], str] | None = None,
    token_file: Path | str | None = None,
    ca: Path | str | None = None,
    ports: Mapping[str, int] | None = None,
    options: SdkOptions | None = None,
) -> Client:
    """Make a client of the node at a URL or in a data directory; use it by `async with`.

    What is not given comes from the environment, then from `./.penstock`. A file that holds the token is read again
    when it changed; a function that returns the token is called again when the node refuses the last one. `ca` is a
    file of certificates that a node's own is held against.
    """
    return Client(place_of(where, token=token, token_file=token_file, ca=ca, ports=ports, options=options), options)


def place_of(  # noqa: PLR0913 - where the node is and as whom, each by its name
    where: Path | str | None = None,
    *,
    token: str | Callable[[], str] | None = None,
    token_file: Path | str | None = None,
    ca: Path | str | None = None,
    ports: Mapping[str, int] | None = None,
    options: SdkOptions | None = None,
) -> NodePlace:
    """Return where a node is. If `ports` are given, only the token is read from the data directory."""
    options = checked_options(options)
    return find(
        Whereabouts(
            where=where,
            token=token,
            token_file=None if token_file is None else Path(token_file),
            ca=None if ca is None else Path(ca),
            ports=ports,
            tls=None if options is None else options.tls,
        )
    )
