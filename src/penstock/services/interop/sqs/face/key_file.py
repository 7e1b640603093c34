"""The sealed file of access keys: 0600, replaced in one step, readable only with the data directory's own secret."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec
from blake3 import blake3
from nacl.exceptions import CryptoError
from nacl.secret import SecretBox

from penstock.kernel.errors import Integrity
from penstock.services.interop.sqs.face.access_keys import AccessKey

FILE: Final = "sqs_keys"
_SEALING_KEY: Final = "sealing.key"
_CONTEXT: Final = "penstock.sqs.seal"


class KeyFile:
    """Reads and writes the keys. Its methods block: they belong on a thread."""

    def __init__(self, folder: Path) -> None:
        """Name the folder; nothing is touched yet."""
        self._folder = folder
        self._path = folder / FILE

    def read(self) -> list[AccessKey]:
        """Return the keys; none when there is no file yet. One that does not open is refused, never overwritten."""
        try:
            sealed = self._path.read_bytes()
        except FileNotFoundError:
            return []
        try:
            return msgspec.msgpack.decode(self._box().decrypt(sealed), type=list[AccessKey])
        except (CryptoError, msgspec.MsgspecError) as exc:
            raise Integrity("The file of access keys does not open.", reason="sealed_keys") from exc

    def write(self, keys: list[AccessKey]) -> None:
        """Replace the keys; a reader sees the old ones or the new ones."""
        _replace(self._path, bytes(self._box().encrypt(msgspec.msgpack.encode(keys))))

    def _box(self) -> SecretBox:
        return SecretBox(blake3(self._secret(), derive_key_context=_CONTEXT).digest())

    def _secret(self) -> bytes:
        path = self._folder / _SEALING_KEY
        try:
            return path.read_bytes()
        except FileNotFoundError:
            secret = os.urandom(32)
            _replace(path, secret)
            return secret


def _replace(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
