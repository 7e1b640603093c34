"""The operator's page: its files, signing in and out, the live stream, and the descriptions of all services."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.admin.assets import Assets, guarded
from penstock.admin.authority import session_cookie, session_of
from penstock.admin.publisher import DEADLINE_S
from penstock.kernel.errors import NotFound, Unauthenticated
from penstock.net.message import Response, StreamResponse
from penstock.net.server.route import Route

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.admin.authority import OperatorOnly
    from penstock.admin.publisher import Publisher
    from penstock.net.message import Request

    # What each service says of itself, by name; asked when somebody reads.
    Descriptions = Callable[[], dict[str, dict[str, object]]]


class SignIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The operator token, or the secret of a one-time link."""

    token: str = ""
    once: str = ""


class SessionOut(msgspec.Struct, frozen=True):
    """Whether the request came with a session, or a token, that is good."""

    signed_in: bool


class OperatorPage:
    """The routes of the operator's page."""

    def __init__(self, authority: OperatorOnly, publisher: Publisher, descriptions: Descriptions) -> None:
        """Serve the publisher's frames to those whom the authority admits."""
        self._authority = authority
        self._publisher = publisher
        self._descriptions = descriptions
        self._assets = Assets()

    def routes(self) -> list[Route]:
        """List the routes; the open ones serve only files of the package."""
        return [
            Route(method="GET", path="/", handler=self._assets.shell, open=True, summary="The operator's page."),
            Route(
                method="GET", path="/assets/{mark}/{name}", handler=self._assets.file, open=True, summary="Its files."
            ),
            Route(
                method="POST",
                path="/login",
                empty=True,
                handler=self._login,
                body=SignIn,
                open=True,
                summary="Begin a session with the operator token or a one-time link.",
                errors=("unauthenticated",),
            ),
            Route(
                method="POST", path="/logout", empty=True, handler=self._logout, open=True, summary="End the session."
            ),
            Route(
                method="GET",
                path="/session",
                handler=self._session,
                answer=SessionOut,
                open=True,
                summary="Whether there is a session: the page asks for nothing that would be refused.",
            ),
            Route(
                method="GET",
                path="/events/stream",
                handler=self._stream,
                summary="The page's figures, once a second, as server-sent events.",
                errors=("busy",),
                deadline_s=DEADLINE_S,
            ),
            Route(method="GET", path="/docs", handler=self._docs, open=True, summary="The API of every service."),
            Route(
                method="GET",
                path="/docs/{service}",
                handler=self._docs_of,
                open=True,
                summary="The API of one service.",
                errors=("not_found",),
            ),
        ]

    # --- sessions

    def _login(self, request: Request, given: SignIn) -> Response:
        secret = self._authority.sign_in(token=given.token, once=given.once)
        if secret is None:
            told = "This is not the operator token." if given.token else "This link was used before, or is too old."
            raise Unauthenticated(told, reason="bad_signature" if given.token else "once")
        return Response(204, content_type=b"", headers=[session_cookie(request, secret)])

    def _logout(self, request: Request) -> Response:
        self._authority.sessions.end(session_of(request))
        return Response(204, content_type=b"", headers=[session_cookie(request, "")])

    def _session(self, request: Request) -> SessionOut:
        return SessionOut(self._authority.judge(request) is None)

    # --- what is shown

    def _stream(self, request: Request) -> StreamResponse:
        viewer = self._publisher.open(lambda: self._authority.judge(request) is None)
        headers = ((b"Cache-Control", b"no-store"), (b"X-Content-Type-Options", b"nosniff"))
        return StreamResponse(200, viewer, b"text/event-stream", headers)

    def _docs(self, request: Request) -> Response:
        from penstock.admin.docs_page import index_page  # noqa: PLC0415 - many nodes never show it

        return self._sent_away(request) or guarded(self._assets.dress(index_page(self._descriptions())))

    def _docs_of(self, request: Request) -> Response:
        from penstock.admin.docs_page import service_page  # noqa: PLC0415 - many nodes never show it

        away = self._sent_away(request)
        if away is not None:
            return away
        described = self._descriptions()
        said = request.params["service"]
        # `mailbox` is enough for svc-mailbox, as in the list of addresses.
        service = said if said in described else f"svc-{said}"
        if service not in described:
            raise NotFound("There is no such service on this node.", hint=f"There are {', '.join(sorted(described))}.")
        return guarded(self._assets.dress(service_page(service, described)))

    def _sent_away(self, request: Request) -> Response | None:
        """Redirect a browser that is not signed in to the sign-in page."""
        if self._authority.judge(request) is None:
            return None
        return Response(303, b"", b"", ((b"Location", b"/"), (b"Cache-Control", b"no-store")))
