"""Bugs planted in the signature check: each lets some request through that must not be, or refuses a good one."""

from __future__ import annotations

from importlib import import_module

import pytest

from penstock.services.interop import sqs
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


REQUESTS = list(_requests())


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


@pytest.mark.parametrize("number", range(len(MUTANTS)))
def test_planted_bug_is_seen(tmp_path, number):
    old, new = MUTANTS[number]
    with planted(sqs, tmp_path / f"planted_sqs_{number}", "sigv4", old, new) as package:
        fault = sight(lambda: _faults(package))

    assert fault, f"{old!r} as {new!r} is not seen"


def test_copy_without_a_bug_passes(tmp_path):
    with planted(sqs, tmp_path / "planted_sqs_none", "sigv4", "class ", "class ") as package:
        assert _faults(package) == ""
