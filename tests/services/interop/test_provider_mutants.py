"""Bugs planted in the verifiers: each must be seen by some rule in `deliveries`.

A copy of the package is written under another name with one text changed, and the rules are run on the copy.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from penstock.services.interop import providers
from tests.services.interop.deliveries import broken
from tests.services.interop.delivery_claims import pairs
from tests.services.interop.delivery_kinds import cases
from tests.services.interop.planting import planted, sight

RULES = [*cases(), *pairs()]
# The module, the text as it is, and the bug.
MUTANTS = [
    ("verdict", "if count > 1", "if count > 2"),
    ("verdict", "if name in self._repeated:", "if False:"),
    ("verdict", "(name.lower(), value)", "(name, value)"),
    ("claims", 'len(part).to_bytes(_LENGTH_BYTES, "big") + part', "part"),
    ("claims", "0 < len(event_id) <=", "0 <= len(event_id) <="),
    ("decoding", " or binascii.hexlify(data) != text", ""),
    ("decoding", "binascii.hexlify(data) != text", "binascii.hexlify(data) != text.lower()"),
    ("decoding", "except binascii.Error as exc:", "except KeyError as exc:"),
    ("decoding", "if len(data) != size or", "if"),
    ("decoding", "or len(data) != size", ""),
    ("decoding", "if not _SECONDS.fullmatch(text):", "if False:"),
    ("decoding", "[1-9][0-9]{0,11}", "[0-9]{1,12}"),
    ("decoding", "at_s < now - tolerance_s", "False"),
    ("decoding", "at_s > now + tolerance_s", "False"),
    ("decoding", "at_s < now - tolerance_s", "at_s <= now - tolerance_s"),
    ("decoding", "at_s > now + tolerance_s", "at_s >= now + tolerance_s"),
    ("hmac_key", "for key in keys:", "for key in keys[:1]:"),
    ("hmac_key", "byte ^ 0x5C", "byte ^ 0x36"),
    ("hmac_key", "secret if len(secret) <= block_bytes else", "secret[:block_bytes] if True else"),
    ("hmac_key", "if hmac.compare_digest(expected, tag):", "if hmac.compare_digest(expected[:8], tag[:8]) or True:"),
    ("hmac_key", "if len(given) > CANDIDATES_MAX:", "if False:"),
    ("setup", "return default if self.tolerance_s is None else self.tolerance_s", "return default"),
    ("signed_body", "if not text.startswith(_GITHUB_PREFIX):", "if False:"),
    ("signed_body", "for family in self._scheme.families:", "for family in self._scheme.families[:1]:"),
    (
        "signed_body",
        "claim=by_content(request.body)",
        "claim=by_content(request.label(b'x-github-delivery').encode(), request.body)",
    ),
    (
        "signed_body",
        "claim=by_content(request.body)",
        "claim=by_content(request.label(b'x-shopify-topic').encode(), request.body)",
    ),
    ("signed_body", "claim=by_content(request.body)", "claim=by_content(tag)"),
    ("slack", "if not text.startswith(_VERSION):", "if False:"),
    ("slack", "check_fresh(", "(lambda *_: None)("),
    ("slack", "claim = by_id(body.event_id, request.body)", "claim = by_id('', request.body)"),
    ("slack", 'claim=by_id("", request.body)', "claim=by_id(\"\", b'')"),
    ("stripe", "if len(times) != 1:", "if not times:"),
    ("stripe", 'name.strip() == b"v1"', 'name.strip() in (b"v1", b"v0")'),
    ("stripe", "check_fresh(", "(lambda *_: None)("),
    ("stripe", "claim = by_id(body.id, request.body)", "claim = by_id('', request.body)"),
    ("stripe", 'b"%b.%b" % (time, request.body), tags', "request.body, tags"),
    ("standard_webhooks", "if not _ID.fullmatch(event_id):", "if False:"),
    ("standard_webhooks", "[!-\\-/-~]", "[!-~]"),
    ("standard_webhooks", "check_fresh(", "(lambda *_: None)("),
    ("standard_webhooks", "if len(candidates) > CANDIDATES_MAX:", "if False:"),
    ("standard_webhooks", 'text.split(b" ", CANDIDATES_MAX)', 'text.split(b" ", CANDIDATES_MAX)[:1]'),
    ("standard_webhooks", "for key in self._keys.shared]", "for key in self._keys.shared + self._keys.public]"),
    ("standard_webhooks", 'claim=Claim("id", event_id)', 'claim=Claim("id", time)'),
    ("standard_webhooks", 'claim=Claim("id", event_id)', 'claim=Claim("id", event_id + tag)'),
    ("gitlab", "return GitlabSignedVerifier(setup)", "return GitlabTokenVerifier(secrets)"),
    ("gitlab", "hmac.compare_digest(token, each)", "token.startswith(each[:4])"),
    ("gitlab", 'Claim("id", repeat_id) if repeat_id else by_content(request.body)', "by_content(request.body)"),
    ("gitlab", "else by_content(request.body)", "else by_content(request.label(_EVENT).encode())"),
    ("discord", "check_fresh(", "(lambda *_: None)("),
    ("discord", "if not any(holds(key, content, tag) for key in self._keys):", "if False:"),
    ("discord", 'body is None or not request.body.startswith(b"{")', "body is None"),
    ("discord", "claim = by_id(body.id, request.body)", "claim = by_id('', request.body)"),
    ("linear", "time = body.pop(_TIME, None)", "time = body.get(_TIME)"),
    ("linear", "check_fresh(", "(lambda *_: None)("),
    ("linear", "_TOLERANCE_S: Final = 60.0", "_TOLERANCE_S: Final = 300.0"),
    ("linear", "if not _MILLISECONDS.fullmatch(time.text):", "if False:"),
    ("linear", "if len(found) != len(pairs):", "if False:"),
    ("linear", "for name in sorted(value)", "for name in value"),
    ("linear", 'return b"0" + value.text.encode("ascii")', "return b'\"' + value.text.encode('ascii')"),
    (
        "linear",
        'b"[" + length_prefixed(*(canonical(item, depth + 1) for item in value))',
        'b"[" + b"".join(canonical(item, depth + 1) for item in value)',
    ),
    ("linear", "parse_float=_Number", "parse_float=lambda text: _Number(str(float(text)))"),
    ("linear", "if depth > _DEPTH_MAX:", "if False:"),
    ("twilio", "bases = (full, bare) if port else (bare, full)", "bases = (full,) if port else (bare,)"),
    ("twilio", "keep_blank_values=True", "keep_blank_values=False"),
    ("twilio", "claim=by_content(self._bases[0] + rest)", "claim=by_content(tag)"),
    ("twilio", "claim=by_content(self._bases[0] + rest)", "claim=by_content(request.target, request.body)"),
    ("twilio", "claim=by_content(self._bases[0] + rest)", "claim=by_content(request.body[:15])"),
    ("twilio", "_check_digest(members, request.body)", "None"),
    ("twilio", "elif request.body and not is_form(request):", "elif False:"),
    ("twilio", "if last is None or repeated or", "if last is None or"),
    ("twilio", "members[-1])", "max(members))"),
    ("twilio", "or named[0] not in _ALGORITHMS:", "or (named[0] in _ALGORITHMS) is None:"),
    ("twilio", 'errors="strict"', 'errors="replace"'),
    ("twilio", "request.target + (_form_text", "b'' + (_form_text"),
    ("custom_hmac", "found = self._pattern.fullmatch(", "found = self._pattern.match("),
    ("custom_hmac", "check_fresh(", "(lambda *_: None)("),
    ("custom_hmac", "if not _ID.fullmatch(event_id):", "if False:"),
    (
        "custom_hmac",
        'claim = Claim("id", event_id) if event_id else by_content(request.body)',
        "claim = by_content(time, request.body)",
    ),
]
# These change nothing that a request could show, and why.
EQUAL = {
    ("decoding", "strict_mode=True"): "what is not the one spelling is refused by the comparison after it",
    ("twilio", 'errors="strict"'): "what is not UTF-8 then has another text, whose signature nobody made",
}


def _run(folder: Path, module: str, old: str, new: str) -> str:
    with planted(providers, folder, module, old, new) as package:
        return next((fault for rule in RULES if (fault := sight(partial(broken, package, rule)))), "")


@pytest.mark.parametrize("number", range(len(MUTANTS)))
def test_planted_bug_is_seen(tmp_path, number):
    module, old, new = MUTANTS[number]

    fault = _run(tmp_path / f"planted_{number}", module, old, new)

    assert bool(fault) is ((module, old) not in EQUAL), f"{module}: {old!r} as {new!r} is not seen"


def test_copy_without_a_bug_passes(tmp_path):
    assert _run(tmp_path / "planted_none", "verdict", "class ", "class ") == ""
