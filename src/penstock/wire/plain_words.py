"""Sizes and broken rules in words for people. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final

import msgspec

_UNITS: Final = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_OUT_OF_RANGE: Final = re.compile(r"Expected `\w+` (of length )?([<>]=) (-?\d+) - at `\$\.?([\w.\[\]]*)`")
_OUT_OF_PATTERN: Final = re.compile(r"Expected `str` matching regex '(.*)' - at `\$\.?([\w.\[\]]*)`", re.DOTALL)
_UNKNOWN_FIELD: Final = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$\.?([\w.\[\]]*)`)?", re.DOTALL)
_MISSING_FIELD: Final = re.compile(r"Object missing required field `(.*?)`(?: - at `\$\.?([\w.\[\]]*)`)?", re.DOTALL)
_WRONG_KIND: Final = re.compile(r"Expected `([\w |]+)`, got `(\w+)`(?: - at `\$\.?([\w.\[\]]*)`)?")
_TOO_LARGE: Final = re.compile(r"Number out of range(?: - at `\$\.?([\w.\[\]]*)`)?")
_NOT_BASE64: Final = re.compile(r"Invalid base64 encoded string(?: - at `\$\.?([\w.\[\]]*)`)?")
_NO_JSON: Final = re.compile(r"JSON is malformed: (.*?)(?: \(byte (\d+)\))?", re.DOTALL)
_NO_CHOICE: Final = re.compile(r"Invalid enum value (.*?)(?: - at `\$\.?([\w.\[\]]*)`)?", re.DOTALL)
_NAME_CHARS_MAX: Final = 64
# How much two words have in common that may be meant for each other; a beginning this long may be meant too.
_NEAR: Final = 0.7
_BEGUN_CHARS_MIN: Final = 3
# So many are named where a word is the beginning of several.
_NAMED_MAX: Final = 3
_KINDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bytes": "Base64 text",
    "bool": "true or false",
    "null": "null",
    "object": "an object",
    "array": "a list",
}
# What a rule of ours means, by how it is written.
_MEANINGS: Final = (
    ("^[A-Za-z0-9._:/-]", "holds letters, digits and . _ : / - only, as in orders/eu"),
    (
        "^(?!",
        "holds letters, digits and . _ : / - only, as in orders/eu; no part between slashes is empty, one dot or two",
    ),
    ("^b3:", "is b3: and 64 hexadecimal digits"),
    ("^[0-9]{1,16}", "is the cursor of the page before"),
)


def size_text(count: int) -> str:
    """Write a number of bytes as people do: `704 KiB`, `2.0 MiB`, `512 bytes`."""
    for unit, size in _UNITS:
        if count >= size:
            whole, rest = divmod(count, size)
            return f"{whole} {unit}" if not rest else f"{count / size:.1f} {unit}"
    return f"{count} bytes" if count != 1 else "1 byte"


def counted(count: int, noun: str) -> str:
    """Write a number with its noun: `1 message`, `2 messages`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def age_text(seconds: float) -> str:
    """Write a span of time with its two largest units: `3d 4h`, `2m 5s`, `0.4s`."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f}s"
    left, parts = round(seconds), list[str]()
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count}{unit}")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if not part.startswith("0"))


def near_word(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that a misspelt one most likely stands for; None when nothing is near.

    Case, `_` and `-` are ignored. What was only begun is meant more likely than what looks alike: `top` is topic, not
    op.
    """
    # A word of any length may come: comparing takes time by the length of both.
    asked = _letters(word[:_NAME_CHARS_MAX])
    plain = {_letters(each): each for each in reversed(tuple(known))}
    if asked in plain or not asked:
        return plain.get(asked)
    swapped = [each for each in plain if len(each) == len(asked) and sorted(each) == sorted(asked)]
    begun = [each for each in plain if each.startswith(asked)] if len(asked) >= _BEGUN_CHARS_MIN else []
    near = swapped or get_close_matches(asked, begun or plain, n=1, cutoff=_NEAR) or sorted(begun, key=len)
    return plain[near[0]] if near else None


def near_words(word: str, known: Iterable[str]) -> list[str]:
    """Return the known words that a misspelt one may stand for: several only where it is the beginning of several."""
    listed = list(dict.fromkeys(known))
    near, asked = near_word(word, listed), _letters(word[:_NAME_CHARS_MAX])
    if near is None or _letters(near) == asked:
        return [] if near is None else [near]
    begun = [each for each in listed if _letters(each).startswith(asked)]
    return begun[:_NAMED_MAX] if near in begun else [near]


def _letters(word: str) -> str:
    return word.casefold().replace("_", "").replace("-", "")


def plain_fault(said: str, *kinds: type | None) -> str:
    """Return what a decoder says about a broken rule as a sentence about the field it is about.

    `kinds` are what could have been read: then a field that is not there is answered with the one that was meant.
    """
    if found := _OUT_OF_RANGE.fullmatch(said):
        unit = " characters" if found[1] else ""
        return f"{found[4] or 'It'} must be at {'most' if found[2] == '<=' else 'least'} {found[3]}{unit}."
    if found := _OUT_OF_PATTERN.fullmatch(said):
        meaning = next((text for start, text in _MEANINGS if found[1].startswith(start)), f"must match {found[1]}")
        return f"{found[2] or 'It'} {meaning}."
    if found := _UNKNOWN_FIELD.fullmatch(said):
        where = f" in {found[2]}" if found[2] else ""
        return f"There is no field {found[1]}{where}.{_meant(found[1], kinds)}"
    if found := _MISSING_FIELD.fullmatch(said):
        return f"The field {found[1]} is missing{f' in {found[2]}' if found[2] else ''}."
    if found := _WRONG_KIND.fullmatch(said):
        wanted = " or ".join(_KINDS.get(kind, kind) for kind in found[1].split(" | "))
        return f"{found[3] or 'The value'} must be {wanted}, not {_KINDS.get(found[2], found[2])}."
    if found := _NO_CHOICE.fullmatch(said):
        return f"{found[2] or 'The value'} is not {found[1]}{_choices(found[2], kinds)}."
    if found := _TOO_LARGE.fullmatch(said):
        where = (found[1] or "").replace("[...]", "")
        return f"A number{f' in {where}' if where else ''} is too large for JSON readers."
    return _unreadable(said)


def _unreadable(said: str) -> str:
    """Say what is no Base64, or where a body stops being JSON; what is said of anything else stays as it is."""
    if found := _NOT_BASE64.fullmatch(said):
        return f"{found[1] or 'The value'} is no Base64 text."
    if said == "Input data was truncated":
        return "The body is no JSON: it ends too early."
    found = _NO_JSON.fullmatch(said)
    if found is None:
        return said
    place = f" (byte {found[2]}, counted from 1)" if found[2] else ""
    return f"The body is no JSON: {found[1]}{place}."


def fault_facts(said: str) -> dict[str, Any]:
    """Return what a program, or a person who asks again, needs to know of a broken rule: field, limit, next step."""
    if found := _OUT_OF_RANGE.fullmatch(said):
        most, bound = found[2] == "<=", int(found[3])
        unit = "" if not found[1] else " character" if bound == 1 else " characters"
        named = {"field": found[4], "limit": found[4]} if found[4] else {}
        return {**named, "limit_value": bound, "hint": f"Give {bound}{unit} or {'less' if most else 'more'}."}
    if found := _NOT_BASE64.fullmatch(said):
        named = {"field": found[1]} if found[1] else {}
        return {
            **named,
            "hint": "Encode the bytes as Base64 with + and /, padded by = to a multiple of four characters.",
        }
    if said == "Input data was truncated":
        return {"hint": "Close every quote, list and object, and send the whole body."}
    if _NO_JSON.fullmatch(said):
        return {"hint": "Look at the quotes, commas and brackets at that byte and before it."}
    return {}


def _choices(name: str | None, kinds: Iterable[type | None]) -> str:
    """List what a field may be, if it is one of a few words."""
    for kind in kinds:
        info = None if kind is None else msgspec.inspect.type_info(kind)
        for field in info.fields if isinstance(info, msgspec.inspect.StructType) else ():
            words = [word for each in _alternatives(field.type) for word in getattr(each, "values", ())]
            if field.encode_name == name and words:
                return f"; it is one of {', '.join(map(str, words))}"
    return ""


def _alternatives(info: msgspec.inspect.Type) -> tuple[msgspec.inspect.Type, ...]:
    return info.types if isinstance(info, msgspec.inspect.UnionType) else (info,)


def _meant(name: str, kinds: Iterable[type | None]) -> str:
    """Name the field that is spelt like this one, if there is one, or those that begin with it."""
    near = near_words(name, [field for kind in kinds if kind is not None for field in _fields(kind)])
    return f" Did you mean {' or '.join(near)}?" if near else ""


@lru_cache(maxsize=256)
def _fields(kind: type) -> tuple[str, ...]:
    """List the fields of a struct, and those of the structs in it, as they are written."""
    found: dict[str, None] = {}
    todo, seen = [msgspec.inspect.type_info(kind)], set[type]()
    while todo:
        info: Any = todo.pop()
        if isinstance(info, msgspec.inspect.StructType) and info.cls not in seen:
            seen.add(info.cls)
            found |= dict.fromkeys(field.encode_name for field in info.fields)
            todo += [field.type for field in info.fields]
        inner = [getattr(info, name, None) for name in ("item_type", "value_type")]
        todo += [each for each in (*inner, *getattr(info, "types", ())) if each is not None]
    return tuple(found)
