"""Bugs planted in the signature check: each lets some request through that must not be, or refuses a good one."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from importlib import import_module

import pytest

from penstock.services.interop import sqs
from penstock.services.interop.sqs.sigv4 import derive_key
from tests.services.interop.planting import planted, sight
from tests.services.interop.sqs import test_sigv4 as known

MUTANTS = [
    ('_SIGNATURE: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)', '_SIGNATURE: Final = re.compile(r".*", re.ASCII)'),
    ("if name in found:", "if False:"),
    ("if len(members) != len(parts):", "if False:"),
    ("if now > latest:", "if False:"),
    ("if now > latest:", "if now >= latest:"),
    ("if at > now + SKEW_S:", "if False:"),
    ("if said is not None and said != digest:", "if False:"),
    (
        "if said is not None and said != digest:",
        'if said is not None and said != digest and said != "UNSIGNED-PAYLOAD":',
    ),
    ("digest = hashlib.sha256(body).hexdigest()\n", "digest = hashlib.sha256(b'').hexdigest()\n"),
    ("if not needed.issubset(claimed.names)", "if False"),
    ('({"x-amz-target"} if b"x-amz-target" in fields else set())', "set()"),
    ('needed.add("x-amz-date")', "pass"),
    ('if b"x-amz-security-token" in fields:', "if False:"),
    ("hmac.compare_digest(_sign(key, claimed, form), claimed.signature)", "True"),
    ("if secret is None:", "if False:"),
    (
        "name = (claimed.key_id, secret, claimed.day, claimed.region)",
        'name = (claimed.key_id, "", claimed.day, claimed.region)',
    ),
    (
        "name = (claimed.key_id, secret, claimed.day, claimed.region)",
        'name = (claimed.key_id, secret, claimed.day, "")',
    ),
    ('path = quote(request.path, safe="/~")', 'path = "/"'),
    ("{request.method}\\n{path}", "{path}"),
    ("{query}\\n{headers}", "{headers}"),
    ('" ".join(value.decode("utf-8", "replace").split())', 'value.decode("utf-8", "replace")'),
    ("int(expires) > _EXPIRES_MAX_S", "False"),
    ('pair[0] != b"X-Amz-Signature"', 'not pair[0].startswith(b"X-Amz-")'),
    ("sorted(pairs, key=lambda pair:", "list(pairs) or sorted(pairs, key=lambda pair:"),
    (
        'text = f"{_ALGORITHM}\\n{claimed.date}\\n{scope}\\n{digest}"',
        'text = f"{_ALGORITHM}\\n{claimed.date}\\n{digest}"',
    ),
]

# In the short way; it never refuses, so only what it lets through by mistake, or never takes, can be seen.
SHORT_MUTANTS = [
    ("if hmac.compare_digest(found, signature) else None", ""),
    ("key.is_of(self._secret_of(key.signer.key_id))", "True"),
    ("return secret == self._secret", "return True"),
    ("and date.startswith(key.day)", ""),
    ("and headers.keys() >= key.names", ""),
    ('and (key.signs_target or b"x-amz-target" not in headers)', ""),
    ('and b"x-amz-security-token" not in headers', ""),
    ("and _is_now(date, now)", ""),
    ("at - SKEW_S <= now <= at + SKEW_S", "at - SKEW_S <= now"),
    ("at - SKEW_S <= now <= at + SKEW_S", "now <= at + SKEW_S"),
    ("at - SKEW_S <= now <= at + SKEW_S", "at - SKEW_S < now < at + SKEW_S"),
    ('if headers.get(b"x-amz-content-sha256", digest) != digest:', "if False:"),
    ("digest = _sha256(body).hexdigest()", "digest = _sha256(b'').hexdigest()"),
    ("short = headers is not None and not request.query", "short = headers is not None"),
    ("{method}\\n{quote", "POST\\n{quote"),
    ("quote(path, safe='/~')", "'/'"),
    ("*self._values(headers)", "*(b'' for _ in self.names)"),
    ('b"AWS4-HMAC-SHA256\\n%b%b%b" % signed', 'b"%b%b%b" % signed'),
]


def _requests():
    """List requests with when they are judged and what must be said of them."""
    for url in ("http://localhost:5309/", "https://h.example/000000000000/q?b=2&a=1"):
        request = known._signed(url=url)
        yield request, 0, ""
        yield request, 900, ""
        yield request, 901, "RequestExpired"
        yield request, -901, "RequestExpired"
    yield known._signed(headers={**known.JSON, "X-Amz-Meta": " a   b "}), 0, ""
    yield known._signed(region="eu-west-1"), 0, ""
    yield known._signed(service="s3"), 0, "SignatureDoesNotMatch"
    yield known._signed(token="fake"), 0, "InvalidClientTokenId"
    yield known.PRE, 3600, ""
    yield known._presigned("http://localhost:5309/?b=2&a=1"), 0, ""
    yield known.PRE, 3601, "RequestExpired"
    yield known.PRE._replace(query=known.PRE.query.replace("3600", "36000")), 0, "SignatureDoesNotMatch"
    yield known.PRE._replace(query=known.PRE.query.replace("3600", "604801")), 0, "IncompleteSignature"
    for request in known.CHANGED.values():
        yield request, None, "SignatureDoesNotMatch"
    for what, request in known.INCOMPLETE.items():
        if what != "bad_date":
            yield request, None, "IncompleteSignature"


def _of_another_day():
    """Sign a request of tomorrow with the key of today, and say so."""
    good = dict(known.GOOD.fields)
    said, _, _ = good[b"authorization"].partition(b"Signature=")
    scope = said.partition(b"/")[2].partition(b",")[0].decode()
    day = scope[:8]
    date = (datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC) + timedelta(days=1)).strftime("%Y%m%dT000005Z")
    names = said.partition(b"SignedHeaders=")[2].partition(b",")[0].decode()
    fields = {**good, b"x-amz-date": date.encode()}
    lines = "".join(f"{name}:{fields[name.encode()].decode()}\n" for name in names.split(";"))
    form = f"POST\n/\n\n{lines}\n{names}\n{hashlib.sha256(known.GOOD.body).hexdigest()}"
    text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashlib.sha256(form.encode()).hexdigest()}"
    key = derive_key(known.SECRET, day, "us-east-1")
    signature = hmac.digest(key, text.encode(), "sha256").hex().encode()
    return known.GOOD._replace(fields=[*{**fields, b"authorization": said + b"Signature=" + signature}.items()])


REQUESTS = list(_requests())
# What only the short way could get wrong: it knows the client by then.
MORE = [
    (known._and(known.GOOD, b"x-amz-security-token", b"fake"), 0, "InvalidClientTokenId"),
    (known._and(known.GOOD, b"x-amz-content-sha256", b"UNSIGNED-PAYLOAD"), 0, "SignatureDoesNotMatch"),
    (known._and(known.GOOD, b"x-amz-content-sha256", b""), 0, "SignatureDoesNotMatch"),
    (_of_another_day(), 0, "SignatureDoesNotMatch"),
    (known.GOOD._replace(method="PUT"), 0, "SignatureDoesNotMatch"),
    (known.GOOD._replace(path="/000000000000/q"), 0, "SignatureDoesNotMatch"),
    (known.GOOD._replace(query="a=1"), 0, "SignatureDoesNotMatch"),
    (known.GOOD._replace(body=b""), 0, "SignatureDoesNotMatch"),
    (
        known.GOOD._replace(fields=[field for field in known.GOOD.fields if field[0] != b"content-type"]),
        0,
        "SignatureDoesNotMatch",
    ),
    (known._signed(headers={"Content-Type": "text/plain"}), 0, ""),
    (
        known._and(known._signed(headers={"Content-Type": "text/plain"}), b"x-amz-target", b"t"),
        0,
        "IncompleteSignature",
    ),
    (known._signed(url="http://localhost:5309/000000000000/a~b"), 0, ""),
]
# All others are refused, presigned, have a query, or a value that is not in canonical form.
SHORT = sum(
    not refusal and not request.query and b"x-amz-meta" not in dict(request.fields)
    for request, _, refusal in (*REQUESTS, *MORE)
)


def _faults(package: str) -> str:
    module = import_module(f"{package}.sigv4")
    refusals = import_module(f"{package}.refusals")
    check = module.SignatureCheck(known.SECRETS.get)
    for request, later_s, expected in REQUESTS:
        now = known._time(known.GOOD) if later_s is None else known._time(request) + later_s
        try:
            check.check(module.SignedRequest(*request), now)
            found = ""
        except refusals.SqsRefusal as refusal:
            found = refusal.name
        if found != expected:
            return f"{found} instead of {expected}"
    return _rotation_fault(module, refusals)


def _rotation_fault(module, refusals) -> str:
    """See that a key whose secret was replaced, or that is gone, does not go on by what was derived before."""
    secrets = {known.KEY: known.SECRET}
    check, request = module.SignatureCheck(secrets.get), module.SignedRequest(*known.GOOD)
    check.check(request, known._time(known.GOOD))
    for secret in ("other-fake", None):
        secrets[known.KEY] = secret
        try:
            check.check(request, known._time(known.GOOD))
        except refusals.SqsRefusal:
            continue
        return "an old secret still works"
    return ""


def _short_faults(package: str) -> str:
    """Ask everything of a check that has believed each client before; the long way counts as seen, it is only slow."""
    module, sigv4 = import_module(f"{package}.day_keys"), import_module(f"{package}.sigv4")
    refusals = import_module(f"{package}.refusals")
    secrets = dict(known.SECRETS)
    check = module.DayKeys(secrets.get)
    requests = [*REQUESTS, *MORE]
    longs = []
    judge = check._long.check
    check._long.check = lambda request, now: longs.append(request) or judge(request, now)
    for believed in (False, True):
        longs.clear()
        for request, later_s, expected in requests:
            now = known._time(known.GOOD) if later_s is None else known._time(request) + later_s
            fields = dict(request.fields) if len(dict(request.fields)) == len(request.fields) else None
            try:
                check.check(sigv4.SignedRequest(*request), fields, now)
                found = ""
            except refusals.SqsRefusal as refusal:
                found = refusal.name
            if found != expected:
                return f"{found} instead of {expected}: believed={believed}"
    if len(requests) - len(longs) != SHORT:
        return f"{len(longs)} requests went the long way"
    good, at = sigv4.SignedRequest(*known.GOOD), known._time(known.GOOD)
    for secret in ("other-fake", None):
        secrets[known.KEY] = secret
        try:
            check.check(good, dict(good.fields), at)
        except refusals.SqsRefusal:
            continue
        return "an old secret still works"
    return ""


@pytest.mark.parametrize("number", range(len(SHORT_MUTANTS)))
def test_bug_planted_in_the_short_way_is_seen(tmp_path, number):
    old, new = SHORT_MUTANTS[number]
    with planted(sqs, tmp_path / f"planted_short_{number}", "day_keys", old, new) as package:
        fault = sight(lambda: _short_faults(package))

    assert fault, f"{old!r} as {new!r} is not seen"


@pytest.mark.parametrize("number", range(len(MUTANTS)))
def test_planted_bug_is_seen(tmp_path, number):
    old, new = MUTANTS[number]
    with planted(sqs, tmp_path / f"planted_sqs_{number}", "sigv4", old, new) as package:
        fault = sight(lambda: _faults(package))

    assert fault, f"{old!r} as {new!r} is not seen"


def test_copy_without_a_bug_passes(tmp_path):
    with planted(sqs, tmp_path / "planted_sqs_none", "sigv4", "class ", "class ") as package:
        assert _faults(package) == ""
        assert _short_faults(package) == ""
