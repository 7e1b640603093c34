"""What botocore signs is accepted, in the header and presigned; any change, old or unsigned part is refused."""

from __future__ import annotations

import hashlib
import random
from datetime import UTC, datetime
from urllib.parse import urlsplit

import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.services.interop.sqs.day_keys import DayKeys
from penstock.services.interop.sqs.refusals import SqsRefusal
from penstock.services.interop.sqs.sigv4 import SignatureCheck, SignedRequest

KEY, SECRET = "AKIAFAKEFAKEFAKEFAKE", "fake/secret+fake"
SECRETS = {KEY: SECRET}
JSON = {"X-Amz-Target": "AmazonSQS.SendMessage", "Content-Type": "application/x-amz-json-1.0"}
BODY = b'{"QueueUrl":"q","MessageBody":"b"}'


def _arrived(request: AWSRequest) -> SignedRequest:
    """Turn what botocore would send into what a listener sees."""
    url = urlsplit(request.url)
    fields = [(name.lower().encode(), str(value).encode()) for name, value in request.headers.items()]
    if not any(name == b"host" for name, _ in fields):
        fields.append((b"host", url.netloc.encode()))
    return SignedRequest(
        request.method, url.path or "/", url.query, fields, request.data if isinstance(request.data, bytes) else b""
    )


def _signed(
    method="POST",
    url="http://localhost:5309/",
    body=BODY,
    headers=None,
    *,
    region="us-east-1",
    service="sqs",
    secret=SECRET,
    token=None,
):
    request = AWSRequest(method, url, headers=JSON if headers is None else headers, data=body)
    SigV4Auth(Credentials(KEY, secret, token), service, region).add_auth(request)
    return _arrived(request)


def _presigned(
    url="http://localhost:5309/000000000000/q?Action=ReceiveMessage&Version=2012-11-05",
    *,
    expires=3600,
    method="GET",
    body=b"",
):
    request = AWSRequest(method, url, data=body)
    SigV4QueryAuth(Credentials(KEY, SECRET), "sqs", "eu-west-1", expires=expires).add_auth(request)
    return _arrived(request)


def _time(request: SignedRequest) -> float:
    headers = dict(request.fields)
    date = (
        headers[b"x-amz-date"].decode() if b"x-amz-date" in headers else request.query.partition("X-Amz-Date=")[2][:16]
    )
    return datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _check(request, *, later_s=0.0, secrets=SECRETS):
    return SignatureCheck(secrets.get).check(request, _time(request) + later_s)


def _refusal(request, now=None, **more):
    call = (
        (lambda: _check(request, **more)) if now is None else (lambda: SignatureCheck(SECRETS.get).check(request, now))
    )
    with pytest.raises(SqsRefusal) as refused:
        call()
    assert refused.value.status == 403
    return refused.value.name


def _with(request, name, value):
    return request._replace(fields=[(n, value if n == name else v) for n, v in request.fields])


def _and(request, name, value):
    return request._replace(fields=[*request.fields, (name, value)])


# --- accepted --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("region", ["us-east-1", "eu-central-1", "local"])
@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:5309/",
        "http://localhost:5309",
        "https://h.example/000000000000/a_b-C.fifo",
        "http://[::1]:5309/sqs",
    ],
)
def test_header_signature_by_botocore_is_accepted(url, region):
    assert _check(_signed(url=url, region=region)) == (KEY, region)


@pytest.mark.parametrize(
    "query", ["Action=ListQueues", "b=2&a=1", "a=%20%2B%2F&b", "a=1&a=0", "tag=%C3%BC", "x=~-_.", "Z=1&a=2"]
)
def test_query_strings_are_put_into_canonical_form(query):
    assert _check(_signed("GET", f"http://localhost:5309/?{query}", b"", {})).key_id == KEY
    assert _check(_presigned(f"http://localhost:5309/?{query}")).region == "eu-west-1"


def test_form_signature_is_accepted():
    headers = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}

    assert _check(_signed(body=b"Action=SendMessage&MessageBody=a+b", headers=headers)).key_id == KEY


def test_presigned_post_is_accepted():
    assert _check(_presigned("http://localhost:5309/", method="POST", body={"Action": "ListQueues"})).key_id == KEY


def test_fields_with_blanks_are_folded():
    assert _check(_signed(headers={**JSON, "X-Amz-Meta": "  a   b  "})).key_id == KEY


def test_content_digest_field_is_compared():
    digest = hashlib.sha256(BODY).hexdigest()

    assert _check(_signed(headers={**JSON, "X-Amz-Content-SHA256": digest})).key_id == KEY


@pytest.mark.parametrize("later_s", [-900, 900])
def test_clock_may_be_a_quarter_of_an_hour_off(later_s):
    assert _check(_signed(), later_s=later_s).key_id == KEY


def test_presigned_holds_until_it_expires():
    assert _check(_presigned(expires=5000), later_s=5000).key_id == KEY


def test_secret_of_the_key_decides():
    other = {KEY: "another-fake"}
    check = SignatureCheck(other.get)
    request = _signed(secret="another-fake")
    now = _time(request)

    assert check.check(request, now).key_id == KEY
    other[KEY] = SECRET
    with pytest.raises(SqsRefusal):
        check.check(request, now)


# --- refused ---------------------------------------------------------------------------------------------------------

GOOD = _signed()
AUTH = dict(GOOD.fields)[b"authorization"]


def _auth(old: bytes, new: bytes) -> SignedRequest:
    assert old in AUTH
    return _with(GOOD, b"authorization", AUTH.replace(old, new))


CHANGED = {
    "body": GOOD._replace(body=BODY + b" "),
    "method": GOOD._replace(method="PUT"),
    "path": GOOD._replace(path="/other"),
    "query": GOOD._replace(query="a=1"),
    "target": _with(GOOD, b"x-amz-target", b"AmazonSQS.DeleteQueue"),
    "host": _with(GOOD, b"host", b"other:5309"),
    "region": _auth(b"us-east-1", b"us-east-2"),
    "signature": _with(GOOD, b"authorization", AUTH[:-1] + (b"1" if AUTH.endswith(b"0") else b"0")),
    "unsigned_payload": _and(GOOD, b"x-amz-content-sha256", b"UNSIGNED-PAYLOAD"),
    "other_digest": _and(GOOD, b"x-amz-content-sha256", b"0" * 64),
}


@pytest.mark.parametrize("what", CHANGED)
def test_changed_request_does_not_match(what):
    assert _refusal(CHANGED[what], _time(GOOD)) == "SignatureDoesNotMatch"


INCOMPLETE = {
    "upper_hex": _with(
        GOOD, b"authorization", AUTH.rpartition(b"=")[0] + b"=" + AUTH.rpartition(b"=")[2].upper().replace(b"0", b"A")
    ),
    "short": _with(GOOD, b"authorization", AUTH[:-1]),
    "no_signature": _with(GOOD, b"authorization", AUTH.partition(b", Signature")[0]),
    "no_credential": _with(GOOD, b"authorization", b"AWS4-HMAC-SHA256 " + AUTH.partition(b", ")[2]),
    "other_algorithm": _auth(b"AWS4-HMAC-SHA256", b"AWS4-ECDSA-P256-SHA256"),
    "basic": _with(GOOD, b"authorization", b"Basic Zm9v"),
    "empty": _with(GOOD, b"authorization", b""),
    "member_twice": _with(GOOD, b"authorization", AUTH + b", Signature=" + b"0" * 64),
    "no_date": GOOD._replace(fields=[pair for pair in GOOD.fields if pair[0] != b"x-amz-date"]),
    "bad_date": _with(GOOD, b"x-amz-date", b"20260230T000000Z"),
    "date_words": _with(GOOD, b"x-amz-date", b"yesterday"),
    "host_unsigned": _auth(b"host;", b""),
    "target_unsigned": _auth(b";x-amz-target", b""),
    "date_unsigned": _auth(b";x-amz-date", b""),
    "two_authorizations": _and(GOOD, b"authorization", AUTH),
    "two_dates": _and(GOOD, b"x-amz-date", b"20260101T000000Z"),
    "two_targets": _and(GOOD, b"x-amz-target", b"AmazonSQS.DeleteQueue"),
    "two_hosts": _and(GOOD, b"host", b"other"),
    "long": _with(GOOD, b"authorization", AUTH + b"," * 5000),
    "signed_twice": GOOD._replace(query="X-Amz-Signature=0"),
    "non_ascii": _with(GOOD, b"authorization", AUTH[:-1] + b"\xff"),
}


@pytest.mark.parametrize("what", INCOMPLETE)
def test_malformed_signature_is_refused(what):
    name = _refusal(INCOMPLETE[what], _time(GOOD))

    # A date that no longer fits the credential's day is told as a mismatch.
    assert name == ("SignatureDoesNotMatch" if what == "bad_date" else "IncompleteSignature")


def test_target_that_was_added_to_a_signed_form_is_refused():
    form = _signed(body=b"Action=ListQueues", headers={"Content-Type": "application/x-www-form-urlencoded"})

    assert _refusal(_and(form, b"x-amz-target", b"AmazonSQS.DeleteQueue")) == "IncompleteSignature"
    assert _refusal(_and(_presigned(), b"x-amz-target", b"AmazonSQS.DeleteQueue")) == "IncompleteSignature"


def test_other_service_is_refused():
    assert _refusal(_signed(service="s3")) == "SignatureDoesNotMatch"


def test_unknown_key_and_wrong_secret_are_refused():
    assert _refusal(GOOD, secrets={}) == "InvalidClientTokenId"
    assert _refusal(_signed(secret="wrong-fake")) == "SignatureDoesNotMatch"


def test_session_tokens_are_refused():
    assert _refusal(_signed(token="fake-token")) == "InvalidClientTokenId"


@pytest.mark.parametrize("later_s", [-901, 901])
def test_skewed_clock_is_refused(later_s):
    assert _refusal(GOOD, later_s=later_s) == "RequestExpired"


def test_expired_and_future_presigned_are_refused():
    assert _refusal(_presigned(expires=60), later_s=61) == "RequestExpired"
    assert _refusal(_presigned(expires=5000), later_s=-901) == "RequestExpired"


def test_unsigned_request_is_refused():
    assert _refusal(SignedRequest("POST", "/", "", [(b"host", b"h")], b""), 0.0) == "MissingAuthenticationToken"


PRE = _presigned()


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("Action=ReceiveMessage", "Action=DeleteQueue", "SignatureDoesNotMatch"),
        ("X-Amz-Expires=3600", "X-Amz-Expires=36000", "SignatureDoesNotMatch"),
        ("X-Amz-Expires=3600", "X-Amz-Expires=0", "IncompleteSignature"),
        ("X-Amz-Expires=3600", "X-Amz-Expires=604801", "IncompleteSignature"),
        ("X-Amz-Expires=3600", "X-Amz-Expires=1_0", "IncompleteSignature"),
        ("&X-Amz-Expires=3600", "", "IncompleteSignature"),
        ("X-Amz-SignedHeaders=host", "X-Amz-SignedHeaders=", "IncompleteSignature"),
        ("X-Amz-Expires=3600", "X-Amz-Expires=3600&X-Amz-Expires=3600", "IncompleteSignature"),
        ("AWS4-HMAC-SHA256", "none", "IncompleteSignature"),
        ("X-Amz-Expires=3600", "X-Amz-Expires=3600&X-Amz-Security-Token=x", "InvalidClientTokenId"),
        ("Version=", "New=1&Version=", "SignatureDoesNotMatch"),
    ],
)
def test_changed_presigned_request_is_refused(old, new, name):
    assert old in PRE.query
    assert _refusal(PRE._replace(query=PRE.query.replace(old, new)), _time(PRE)) == name


def test_body_of_a_presigned_request_is_signed():
    assert _refusal(PRE._replace(body=b"Action=DeleteQueue")) == "SignatureDoesNotMatch"


@given(st.binary(max_size=120), st.text(max_size=60), st.text(max_size=20))
@settings(max_examples=200, deadline=None)
def test_any_header_and_query_are_refused_without_raising(header, query, path):
    for authorization in (header, b"AWS4-HMAC-SHA256 " + header, AUTH[: len(header)]):
        request = SignedRequest("POST", path, query, [(b"authorization", authorization), (b"host", header)], b"")
        assert _refusal(request, 1.0)
    assert _refusal(SignedRequest("GET", path, f"X-Amz-Signature={query}&{query}", [], b""), 1.0)


def test_no_changed_byte_gets_past_the_short_way_for_a_client_that_was_believed():
    draw, check = random.Random(5), DayKeys(SECRETS.get)
    at = _time(GOOD)
    assert check.check(GOOD, dict(GOOD.fields), at) == check.check(GOOD, dict(GOOD.fields), at) == (KEY, "us-east-1")
    signed = {b"authorization", b"host", b"x-amz-date", b"x-amz-target", b"content-type"}
    for _ in range(400):
        fields = [*GOOD.fields]
        place = draw.choice([n for n, (name, _) in enumerate(fields) if name in signed])
        name, value = fields[place]
        where = draw.randrange(len(value))
        fields[place] = (name, value[:where] + bytes([value[where] ^ (1 << draw.randrange(7))]) + value[where + 1 :])
        changed = GOOD._replace(fields=fields)
        with pytest.raises(SqsRefusal):
            check.check(changed, dict(fields), at)
    assert check.check(GOOD, dict(GOOD.fields), at).key_id == KEY
