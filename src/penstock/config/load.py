"""The one place that reads files: the configuration file, and secrets that lie in files or the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from penstock.config.build import Machine, Pins, build
from penstock.config.faults import (
    ConfigFaults,
    Fault,
    Layer,
    ValueOrigin,
)
from penstock.config.kinds import BadValue
from penstock.config.schema import Schema
from penstock.config.settings import Settings
from penstock.config.sources import Document, Sources

_FILE_BYTES_MAX = 1 << 20
_SECRET_BYTES_MAX = 64 << 10
_ONE_NEWLINE = re.compile(r"\r?\n\Z")
# Where the system will not say, assume a small machine.
_RAM_BYTES_UNKNOWN = 2 << 30


class SourcesReading:
    """The sources as read at one moment, so that two builds see the same file."""

    def __init__(self, sources: Sources) -> None:
        """Read the file; raises ConfigFaults when it cannot be read."""
        self._sources = sources
        self._document = None if sources.file is None else read_document(sources.file)
        self._machine = Machine(ram_bytes=ram_bytes(), fetch=_Secrets(sources.environ).fetch)

    def build(self, schema: Schema, pins: Pins = MappingProxyType({})) -> Settings:
        """Make the effective settings, or raise ConfigFaults with all that is wrong."""
        return build(schema, self._document, self._sources, self._machine, pins)


def load(schema: Schema, sources: Sources) -> Settings:
    """Read every source and make the effective settings, or raise ConfigFaults with all that is wrong."""
    return SourcesReading(sources).build(schema)


def read_document(path: Path) -> Document:
    """Read a configuration file; a missing, huge or undecodable one is a fault of its own."""
    try:
        return Document(str(path), _read(path, _FILE_BYTES_MAX))
    except BadValue as exc:
        raise ConfigFaults([Fault("", "", ValueOrigin(Layer.FILE, str(path)), str(exc))]) from None


def ram_bytes() -> int:
    """Return the size of the machine's memory."""
    try:
        pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return _RAM_BYTES_UNKNOWN
    return pages * page_bytes if pages > 0 and page_bytes > 0 else _RAM_BYTES_UNKNOWN


class _Secrets:
    """Fetches secrets from the places that settings name."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def fetch(self, part: str, name: str) -> str:
        from_env = part in ("_env", "env:")
        text = self._environ.get(name, "") if from_env else self._from_file(part, name)
        if not text:
            raise BadValue("names an environment variable that is not set" if from_env else "names an empty file")
        return text

    @staticmethod
    def _from_file(part: str, name: str) -> str:
        # Editors and `echo` end a file with a newline that is no part of the secret.
        if part == "_file":
            return _read(Path(name), _SECRET_BYTES_MAX).rstrip("\r\n")
        # What a provider made may end with a newline of its own, so exactly one is cut.
        return _ONE_NEWLINE.sub("", _read(Path(name), _SECRET_BYTES_MAX, private=True))


def _read(path: Path, bytes_max: int, *, private: bool = False) -> str:
    try:
        with path.open("rb") as file:
            if private and os.fstat(file.fileno()).st_mode & 0o077:
                raise BadValue(f"is readable by group or world; run `chmod 600 {path}`")
            data = file.read(bytes_max + 1)
    except BadValue:
        raise
    except (OSError, ValueError) as exc:
        raise BadValue(f"cannot be read: {getattr(exc, 'strerror', None) or 'not a path'}") from None
    if len(data) > bytes_max:
        raise BadValue(f"is larger than {bytes_max} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadValue("is not UTF-8 text") from None
