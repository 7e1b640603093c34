"""The files of the operator's page: read when first asked for, under a folder name that changes with their content."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.kernel.errors import NotFound
from penstock.net.message import Response

if TYPE_CHECKING:
    from penstock.net.message import Request

HTML: Final = b"text/html; charset=utf-8"
_TYPES: Final = {
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}
_FOREVER: Final = b"public, max-age=31536000, immutable"
# The page is built from its own files alone: nothing inline, nothing from elsewhere, no frame around it.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
GUARDS: Final = (
    (b"Content-Security-Policy", POLICY.encode("ascii")),
    (b"X-Content-Type-Options", b"nosniff"),
    (b"X-Frame-Options", b"DENY"),
    (b"Referrer-Policy", b"no-referrer"),
    (b"Cross-Origin-Opener-Policy", b"same-origin"),
    (b"Cross-Origin-Resource-Policy", b"same-origin"),
)


class Assets:
    """The page's HTML and the files it refers to."""

    @cached_property
    def _loaded(self) -> LoadedAssets:
        # A node that nobody looks at never reads or compresses them.
        return LoadedAssets()

    def dress(self, html: str) -> bytes:
        """Point the references of a page at the present names of the files."""
        return self._loaded.dress(html)

    def shell(self, request: Request) -> Response:
        """Serve the page's HTML; its figures come by `/events/stream`, which needs a session."""
        return self._loaded.shell.answer(request)

    def file(self, request: Request) -> Response:
        """Serve one file of the page."""
        found = self._loaded.answers.get((request.params["mark"], request.params["name"]))
        if found is None:
            raise NotFound("The page has no such file.")
        return found.answer(request)


class LoadedAssets:
    """The files in RAM. One mark stands for all of them, so that scripts find each other by their plain names.

    A browser may keep them for ever: if one of them changes, all of them have another address. A page that was opened
    before never mixes old files with new ones; what it has not loaded by then is 404, and it says so.
    """

    def __init__(self) -> None:
        """Read the files that lie beside this module."""
        folder = Path(__file__).parent / "static"
        bodies = {each.name: each.read_bytes() for each in sorted(folder.iterdir()) if each.suffix[1:] in _TYPES}
        self._mark = _mark(b"".join(name.encode("ascii") + b"\0" + body for name, body in bodies.items()))
        self._names = tuple(bodies)
        self.answers = {
            (self._mark, name): WebFile(body, _TYPES[name.rpartition(".")[2]], _FOREVER)
            for name, body in bodies.items()
        }
        self.shell = WebFile(self.dress((folder / "page.html").read_text("utf-8")), HTML, b"no-cache")

    def dress(self, html: str) -> bytes:
        """Point the references of a page at the present addresses of the files."""
        for name in self._names:
            html = html.replace(f'"{name}"', f'"/assets/{self._mark}/{name}"')
        return html.encode("utf-8")


class WebFile:
    """A file as it is sent: as it lies there, or compressed once, when the page was loaded."""

    def __init__(self, body: bytes, kind: bytes, keep: bytes) -> None:
        """Make both answers; they have marks of their own, because their bytes differ."""
        import gzip  # noqa: PLC0415 - with the first page, not with the node

        self._plain = _cached(body, kind, keep)
        packed = gzip.compress(body, mtime=0)
        self._packed = _cached(packed, kind, keep, (b"Content-Encoding", b"gzip"))

    def answer(self, request: Request) -> Response:
        """Send what the browser can read, or 304 if it has this version."""
        accepted = request.headers.get(b"accept-encoding", b"")
        names = {part.partition(b";")[0].strip().lower() for part in accepted.split(b",") if b"q=0" not in part}
        return _unless_known(request, self._packed if b"gzip" in names else self._plain)


def guarded(html: bytes) -> Response:
    """Answer with a page that is made for this request."""
    return Response(200, html, HTML, ((b"Cache-Control", b"no-store"), *GUARDS))


def _cached(body: bytes, kind: bytes, keep: bytes, *more: tuple[bytes, bytes]) -> Response:
    mark = f'"{_mark(body)}"'.encode("ascii")
    fields = ((b"ETag", mark), (b"Cache-Control", keep), (b"Vary", b"Accept-Encoding"), *more, *GUARDS)
    return Response(200, body, kind, fields)


def _unless_known(request: Request, answer: Response) -> Response:
    """Answer 304 if the browser has this version."""
    etag = dict(answer.headers)[b"ETag"]
    known = [mark.strip().removeprefix(b"W/") for mark in request.headers.get(b"if-none-match", b"").split(b",")]
    return Response(304, b"", b"", answer.headers) if etag in known else answer


def _mark(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:16]
