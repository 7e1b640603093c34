"""Keys in a hardware module, by PKCS#11: they are made there, sign there and never leave it. Ed25519 only."""

from __future__ import annotations

import importlib
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from penstock.capability import ed25519
from penstock.capability.token import ED25519
from penstock.capability.trust import KeyRecord
from penstock.kernel.errors import Malformed
from penstock.services.passport.kms import FOREVER_S, KmsFailed, kid_of

_LABEL: Final = "penstock-passport"
# DER: an octet string of 32 bytes holds the point; the curve is named by its object identifier.
_POINT_HEAD: Final = b"\x04\x20"
_ED25519_NAME: Final = bytes.fromhex("130c656477617264733235353139")
GENERATIONS: Final = 2


class Pkcs11Kms:
    """One session of a module's token. The label of a key holds its number and when it was made, its id is its kid."""

    inline = False

    def __init__(self, module: Path | None, token_label: str, pin: str) -> None:
        """Name the module; nothing is loaded before `open`."""
        if module is None:
            raise KmsFailed("passport.kms.pkcs11.module is not set")
        self._module = module
        self._token_label = token_label
        self._pin = pin
        self._session: Any = None
        self._lib: Any = None
        # What the module may say no with, and what of it means that our session is over; known once its library is
        # loaded.
        self._errors: tuple[type[Exception], ...] = ()
        self._lost: tuple[type[Exception], ...] = ()
        self._opening = threading.Lock()

    def open(self, algs: tuple[str, ...], now_s: int) -> None:
        """Open a session and find the keys, or make the first one."""
        self._check_algs(algs)
        try:
            self._lib = importlib.import_module("pkcs11")
            said = self._lib.exceptions
            self._errors = (said.PKCS11Error,)
            self._lost = (said.SessionHandleInvalid, said.SessionClosed, said.DeviceRemoved, said.UserNotLoggedIn)
            self._session = self._begin_session()
        except ImportError as exc:
            raise KmsFailed("the python-pkcs11 package is not installed") from exc
        except (OSError, RuntimeError) as exc:
            raise KmsFailed(f"the module cannot be used: {type(exc).__name__}") from exc
        except self._errors as exc:
            raise _failed(exc) from exc
        if not self.public_keys():
            self.rotate(algs, now_s)

    def _begin_session(self) -> Any:  # noqa: ANN401 - a class of the library's
        token = self._lib.lib(str(self._module)).get_token(token_label=self._token_label)
        return token.open(rw=True, user_pin=self._pin)

    def _begin_again(self, lost: object) -> None:
        """Replace a session that is over, as a module that restarted leaves it; whoever finds that first does so."""
        with self._opening:
            if self._session is lost:
                self._session = self._begin_session()

    def close(self) -> None:
        """End the session; the keys stay in the module."""
        session, self._session = self._session, None
        try:
            if session is not None:
                session.close()
        except self._errors as exc:
            raise _failed(exc) from exc

    def _check_algs(self, algs: tuple[str, ...]) -> None:
        if set(algs) != {ED25519}:
            raise KmsFailed("this engine has no ML-DSA-65: set passport.pq.mode to off")

    def sign(self, kid: str, message: bytes) -> bytes:
        """Sign with exactly this key; where the session is over this fails, and the next has another."""
        session = self._session
        try:
            return self._signed(session, kid, message)
        except self._errors as exc:
            if isinstance(exc, self._lost):
                with suppress(*self._errors):
                    self._begin_again(session)
            raise _failed(exc) from exc

    def _signed(self, session: Any, kid: str, message: bytes) -> bytes:  # noqa: ANN401 - a class of the library's
        lib = self._lib
        key = session.get_key(object_class=lib.ObjectClass.PRIVATE_KEY, id=bytes.fromhex(kid))
        signature: bytes = key.sign(message, mechanism=lib.Mechanism.EDDSA)
        return signature

    def rotate(self, algs: tuple[str, ...], now_s: int) -> None:
        """Make a new pair in the module and destroy what is older than one generation."""
        self._check_algs(algs)
        try:
            self._make(now_s)
            self._destroy_older()
        except self._errors as exc:
            raise _failed(exc) from exc

    def _make(self, now_s: int) -> None:
        lib = self._lib
        parameters = self._session.create_domain_parameters(
            lib.KeyType.EC_EDWARDS, {lib.Attribute.EC_PARAMS: _ED25519_NAME}, local=True
        )
        # Numbered, because two rotations may fall into one second and a clock may go back.
        number = 1 + max((number for number, _ in self._found()), default=0)
        label = f"{_LABEL}@{number}@{now_s}"
        public, private = parameters.generate_keypair(
            mechanism=lib.Mechanism.EC_EDWARDS_KEY_PAIR_GEN, store=True, label=label
        )
        kid = bytes.fromhex(kid_of(_point(public[lib.Attribute.EC_POINT])))
        public[lib.Attribute.ID] = kid
        private[lib.Attribute.ID] = kid

    def _destroy_older(self) -> None:
        lib = self._lib
        kept = {record.kid for record in self.public_keys()[:GENERATIONS]}
        for kind in (lib.ObjectClass.PRIVATE_KEY, lib.ObjectClass.PUBLIC_KEY):
            for key in list(self._session.get_objects({lib.Attribute.CLASS: kind})):
                if key.label.startswith(f"{_LABEL}@") and key.id.hex() not in kept:
                    key.destroy()

    def public_keys(self) -> tuple[KeyRecord, ...]:
        """Return the public keys in the module, the newest first."""
        return tuple(record for _, record in sorted(self._found(), key=lambda found: -found[0]))

    def _found(self) -> list[tuple[int, KeyRecord]]:
        lib = self._lib
        try:
            keys = list(self._session.get_objects({lib.Attribute.CLASS: lib.ObjectClass.PUBLIC_KEY}))
            ours = [key for key in keys if key.label.startswith(f"{_LABEL}@")]
            return [_record(key.label, key.id.hex(), key[lib.Attribute.EC_POINT]) for key in ours]
        except self._errors as exc:
            raise _failed(exc) from exc


def _failed(exc: Exception) -> KmsFailed:
    return KmsFailed(f"the module said {type(exc).__name__}")


def _record(label: str, kid: str, point: bytes) -> tuple[int, KeyRecord]:
    _, number, made_at = label.split("@")
    return int(number), KeyRecord(kid, ED25519, _point(point), b"", int(made_at), int(made_at) + FOREVER_S)


def _point(data: bytes) -> bytes:
    """Take the point out of its DER wrapping; some modules leave the wrapping off."""
    raw = data[len(_POINT_HEAD) :] if data.startswith(_POINT_HEAD) and len(data) == 34 else data
    try:
        return ed25519.read_public(raw)
    except Malformed as exc:
        raise KmsFailed("the module gave a key that is none") from exc
