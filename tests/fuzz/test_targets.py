"""Every target over its corpus and mutated inputs, for a bounded number of examples; `scripts/fuzz` has no bound."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.capability import caveats, token, verifier
from penstock.kernel.errors import PenstockError
from penstock.wire import cbor, inflate
from penstock.wire.http1 import head
from penstock.wire.oap import frame
from tests.capability.kit import Issuer
from tests.fuzz import targets
from tests.fuzz.mutating import CORPUS, corpus_of, mutated
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS

EXAMPLES = 10_000 if os.environ.get("PENSTOCK_TEST_FULL") else 150
INPUTS = [(name, path.name) for name in TARGETS for path in sorted((CORPUS / name).iterdir())]


@pytest.mark.parametrize(("name", "file"), INPUTS)
def test_every_input_of_the_corpus_holds(name: str, file: str) -> None:
    data = (CORPUS / name / file).read_bytes()

    assert TARGETS[name](data) is None


@pytest.mark.parametrize("name", TARGETS)
def test_bent_inputs_hold(name: str) -> None:
    inputs = corpus_of(name)

    @settings(max_examples=EXAMPLES, deadline=None, database=None)
    @given(st.integers(0, 2**32))
    def check(number: int) -> None:
        TARGETS[name](mutated(random.Random(number), inputs))

    check()


@pytest.mark.parametrize("name", TARGETS)
def test_bytes_from_nowhere_hold(name: str) -> None:
    @settings(max_examples=EXAMPLES // 3, deadline=None, database=None)
    @given(st.binary(max_size=300))
    def check(data: bytes) -> None:
        TARGETS[name](data)

    check()


def test_every_target_has_seeds_and_a_corpus() -> None:
    committed = {folder.name for folder in CORPUS.iterdir() if list(folder.iterdir())}

    assert committed == set(TARGETS)
    assert {name for name, inputs in seeds().items() if inputs} == set(TARGETS)


# --- planted: each of these is found by the mutator within its examples ---------------------------------------------


def _lax_text(text: str) -> bytes:
    """Decode as the standard library does: any trailing bits, any foreign character."""
    return token.base64.urlsafe_b64decode(text[5:] + "=" * (-len(text[5:]) % 4))


def _any_length(data: bytes, at: int, power: int) -> tuple[int, int]:
    end = at + (1 << power if power < 4 else 1)
    return int.from_bytes(data[at:end], "big"), end


PLANTED = {
    "a lax base64 reader": ("token_text", token, "_bytes_of", _lax_text),
    "a verifier that skips the proof": ("token_envelope", verifier.UnprovenToken, "run", lambda _pending: True),
    "numbers in any length": ("canonical_cbor", cbor, "_long", _any_length),
    "any word in a caveat": ("caveat_text", caveats, "_check_word", lambda _family, _word: None),
    "a length that is trusted": ("oap_frames", frame, "_bad_header", lambda *_: KeyError("planted")),
    "a blind Content-Length": ("http_requests", head, "content_length", lambda _length: 0),
    "an inflater that does not count": ("inflated", inflate.Inflater, "_measure", lambda _self, _bytes: None),
}


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start and end without memories: what is believed under a planted fault must not be believed after it."""
    monkeypatch.setattr(targets, "_ISSUER", Issuer())
    _forget()
    yield
    _forget()


def _forget() -> None:
    for kept in (caveats.parse, caveats._checked, token._kept):
        kept.cache_clear()


@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_fault_is_found(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, where, attribute, planted = PLANTED[what]
    monkeypatch.setattr(where, attribute, planted)
    inputs, rng = corpus_of(name), random.Random(7)

    with pytest.raises(Exception) as caught:  # noqa: PT012 - whatever the target noticed
        for _ in range(20_000):
            TARGETS[name](mutated(rng, inputs))
    assert not isinstance(caught.value, PenstockError)
