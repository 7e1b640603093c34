"""The routes of the admin listener."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock import config
from penstock.admin.exposition import CONTENT_TYPE, Exposition
from penstock.kernel.errors import NotFound, PolicyBlocked
from penstock.net.message import Response
from penstock.net.server.route import Route

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.admin.view import NodeView
    from penstock.net.message import Request


class KilledOut(msgspec.Struct, frozen=True):
    """A task was crashed on purpose; the supervisor decides what follows."""

    killed: str


class SettingChangeOut(msgspec.Struct, frozen=True):
    """One setting that changed, redacted where it is secret."""

    key: str
    old: str
    new: str


class ReloadReport(msgspec.Struct, frozen=True):
    """What a reload did; `held` waits for a restart, `failed` could not be applied and is tried at the next reload."""

    changed: list[SettingChangeOut]
    held: list[SettingChangeOut]
    failed: list[str]


class SettingOut(msgspec.Struct, frozen=True):
    """One setting, as `penstock config show` tells it: `value` and `default` are redacted where they are secret.

    `source` is default, file, env, flag or set, and `origin` the place in words (`penstock.toml:12`); `follows` names
    the setting that it was taken or computed from. `apply` says when a changed value takes effect: live and rebind with
    a reload, restart with the next start.
    """

    key: str
    value: Any
    origin: str
    default: Any
    apply: str
    source: str
    changed: bool
    follows: str
    help: str


class ConfigurationReport(msgspec.Struct, frozen=True):
    """Every setting in force, and what the last reload left undone.

    `held` are changes that wait for a restart, `failed` what could not be applied, and `faults` what was wrong with a
    configuration that was refused.
    """

    settings: list[SettingOut]
    held: list[SettingChangeOut]
    failed: list[str]
    faults: list[str]


class AdminRoutes:
    """The node as an operator sees it."""

    def __init__(self, view: NodeView, is_operator: Callable[[Request], bool]) -> None:
        """Ask the view; whoever is not the operator gets metrics that all others of that second get too."""
        self._view = view
        self._is_operator = is_operator
        self._exposition = Exposition(view.metrics)

    def routes(self) -> list[Route]:
        """List the routes; all but the ones marked open need the operator token."""
        return [
            Route(method="GET", path="/metrics", handler=self._metrics, summary="All metrics of the node."),
            Route(
                method="GET", path="/inventory", handler=self._inventory, summary="Every channel, task, lock, limit."
            ),
            Route(method="GET", path="/status", handler=self._status, summary="Services, gates, phases, restarts."),
            # Under the paths that the gateway has too, so that a client need not know which of the two it asks.
            Route(method="GET", path="/v1/node/metrics", handler=self._metrics, summary="All metrics of the node."),
            Route(
                method="GET",
                path="/v1/node/inventory",
                handler=self._inventory,
                summary="Every channel, task, lock, limit.",
            ),
            Route(
                method="GET", path="/v1/node/status", handler=self._status, summary="Services, gates, phases, restarts."
            ),
            Route(
                method="GET",
                path="/v1/node/config",
                handler=self._config,
                answer=ConfigurationReport,
                summary="Every setting with its value, its place and when a change takes effect; no secrets.",
            ),
            Route(
                method="POST",
                path="/v1/node/reload",
                handler=self._reload,
                answer=ReloadReport,
                summary="Read the configuration again.",
                errors=("malformed",),
            ),
            Route(
                method="POST",
                path="/tasks/{name}/kill",
                handler=self._kill,
                answer=KilledOut,
                summary="Crash a task; needs node.chaos.",
                errors=("not_found", "policy_blocked"),
            ),
            Route(
                method="POST",
                path="/config/reload",
                handler=self._reload,
                answer=ReloadReport,
                summary="Read the configuration again.",
                errors=("malformed",),
            ),
        ]

    def _metrics(self, request: Request) -> Response:
        made = self._exposition
        return Response(200, made.page() if self._is_operator(request) else made.recent_page(), CONTENT_TYPE)

    def _inventory(self, _request: Request) -> dict[str, object]:
        return self._view.inventory()

    def _status(self, _request: Request) -> dict[str, object]:
        return self._view.status()

    def _config(self, _request: Request) -> ConfigurationReport:
        state = self._view.reloads()
        rows = msgspec.convert(self._view.settings(), list[SettingOut], from_attributes=True)
        return ConfigurationReport(rows, _changes(state.held), list(state.failed), list(state.faults))

    def _kill(self, request: Request) -> KilledOut:
        if not self._view.chaos:
            raise PolicyBlocked("Killing tasks needs node.chaos = true.")
        name = request.params["name"]
        if not self._view.kill(name):
            raise NotFound(f"No task {name} is running.")
        return KilledOut(name)

    async def _reload(self, _request: Request) -> ReloadReport:
        # Bounded by the request's own deadline.
        outcome = await self._view.reload()
        done = outcome.reloaded
        return ReloadReport(_changes(done.changed), _changes(done.held), list(outcome.failed))


def _changes(changes: Iterable[config.SettingChange]) -> list[SettingChangeOut]:
    return [SettingChangeOut(change.key, change.old, change.new) for change in changes]
