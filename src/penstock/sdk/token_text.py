"""A token as it was typed, exported or read from a file: white space around it goes, what is none is refused."""

from __future__ import annotations

import re
from typing import Final

from penstock.sdk.errors import NoToken

# What a header field can carry as a bearer token (RFC 6750).
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
# What every token begins with. Written here too, because `penstock.capability` loads cryptography, which is slow.
_PREFIX: Final = "psp1_"
_BEARER: Final = "bearer "


def clean_token(text: str, named: str = "The token") -> str:
    """Return the token without the white space around it; `NoToken` says why it can be none.

    The token itself is never in the message: it is a secret.
    """
    token = text.strip()
    if token.startswith(_PREFIX) and _TOKEN.fullmatch(token):
        return token
    if not token:
        raise NoToken(f"{named} is empty.", hint="Give a token, or leave it out.")
    if token[: len(_BEARER)].lower() == _BEARER:
        raise NoToken(f"{named} begins with the word Bearer.", hint="Give what comes after it.")
    if len(token.split()) > 1:
        raise NoToken(f"{named} is several words; a token is one.", hint=f"Give the text that begins with {_PREFIX}.")
    if not token.startswith(_PREFIX):
        hint = "Give what penstock token issue prints; a file that holds it is named by PENSTOCK_TOKEN_FILE."
        raise NoToken(f"{named} does not begin with {_PREFIX}, as every token does.", hint=hint)
    raise NoToken(f"{named} holds a character that no token has.", hint=f"Copy it again, from {_PREFIX} to its end.")
