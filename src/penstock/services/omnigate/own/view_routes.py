"""The routes of views and of provider lookup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from penstock.contracts import mailbox as m
from penstock.contracts import storage as s
from penstock.kernel.errors import DownstreamUnavailable, NotFound
from penstock.net.message import Response
from penstock.net.server.route import Route
from penstock.services.omnigate.own.calling import call_of, convert, present
from penstock.services.omnigate.own.views import VIEW_BYTES_MAX, ViewOut

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.contracts.call import Call
    from penstock.net.calls.client import HttpClient
    from penstock.net.message import Request
    from penstock.services.omnigate.own.calling import DownstreamCalls
    from penstock.services.omnigate.own.hydration import Hydrator, Source
    from penstock.services.omnigate.own.views import ViewSpec

_ERRORS: Final = (
    "malformed",
    "unauthenticated",
    "expired",
    "forbidden",
    "policy_blocked",
    "not_found",
    "timeout",
    "busy",
    "rate_limited",
    "not_ready",
    "downstream_unavailable",
)
_OK: Final = 200


class ViewRoutes:
    """`GET /v1/view/{name}`."""

    def __init__(self, views: Mapping[str, ViewSpec], hydrator: Hydrator) -> None:
        self._views = views
        self._hydrator = hydrator

    def routes(self) -> list[Route]:
        """Describe the routes."""
        return [
            Route(
                method="GET",
                path="/v1/view/{name}",
                handler=self._view,
                answer=ViewOut,
                op="get",
                summary="One answer made of several parts.",
                errors=_ERRORS,
            ),
        ]

    async def _view(self, request: Request) -> Response:
        view = self._views.get(request.params["name"])
        if view is None:
            raise NotFound("There is no such view.")
        params = view.read(request.query_params())
        body = await self._hydrator.render(view, params, call_of(request), request.timeout_s)
        return Response(200, body)


class ViewSources:
    """The sources of a view's parts; each call goes through its downstream."""

    def __init__(self, http: HttpClient, storage: s.Storage | None, mailbox: m.Mailbox | None) -> None:
        """Take what may be asked."""
        self._http = http
        self._storage = storage
        self._mailbox = mailbox

    def table(self, storage: DownstreamCalls, mailbox: DownstreamCalls) -> dict[str, Source]:
        """Name the sources as a configuration does."""

        async def obj(target: str, call: Call, _timeout_s: float) -> bytes:
            return await storage.call("get", lambda: self._object(target, call), idempotent=True)

        async def info(target: str, call: Call, _timeout_s: float) -> bytes:
            return await storage.call("head", lambda: self._info(target, call), idempotent=True)

        async def topic(target: str, call: Call, _timeout_s: float) -> bytes:
            return await mailbox.call("topic", lambda: self._topic(target, call), idempotent=True)

        return {"http": self._fetch, "object": obj, "object_info": info, "topic": topic}

    async def _fetch(self, target: str, call: Call, timeout_s: float) -> bytes:
        headers = [(b"Accept", b"application/json"), (b"X-Deadline-Ms", b"%d" % max(1, int(timeout_s * 1000)))]
        if call.traceparent:
            headers.append((b"traceparent", call.traceparent.encode("ascii")))
        answer = await self._http.request("GET", target, headers=headers, timeout_s=timeout_s, corr_id=call.corr_id)
        if answer.status != _OK:
            raise DownstreamUnavailable(
                "The upstream did not answer 200.", status=502, reason=f"status_{answer.status}"
            )
        return answer.body

    async def _object(self, target: str, call: Call) -> bytes:
        storage = present(self._storage, "svc-storage")
        chunk = await storage.get(convert({"address": target, "length": VIEW_BYTES_MAX}, s.Get), call)
        if len(chunk.data) != chunk.size:
            raise DownstreamUnavailable("The object is larger than a view may be.", status=502, limit="view_bytes")
        return chunk.data

    async def _info(self, target: str, call: Call) -> bytes:
        storage = present(self._storage, "svc-storage")
        return msgspec.json.encode(await storage.head(convert({"address": target}, s.Head), call))

    async def _topic(self, target: str, call: Call) -> bytes:
        mailbox = present(self._mailbox, "svc-mailbox")
        return msgspec.json.encode(await mailbox.topic(convert({"topic": target}, m.GetTopic), call))
