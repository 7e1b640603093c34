"""Links work once and not for long, sessions end by time, by hand and with the token, and the table has a bound."""

from __future__ import annotations

import pytest

from penstock.admin.sessions import LINK_S, LINKS_MAX, SESSION_S, SESSIONS_MAX, Sessions

TOKEN = "psp1_the-token-of-this-node"


def test_a_link_turns_into_a_session_once() -> None:
    sessions = Sessions()
    once = sessions.make_link(TOKEN, now=0.0)
    first = sessions.redeem(once, TOKEN, now=1.0)
    second = sessions.redeem(once, TOKEN, now=1.0)

    assert first is not None
    assert first != once
    assert sessions.holds(first, TOKEN, now=2.0)
    assert second is None


@pytest.mark.parametrize(("after_s", "works"), [(LINK_S - 1, True), (LINK_S, False), (LINK_S + 1, False)])
def test_a_link_lapses(after_s: float, works: bool) -> None:
    sessions = Sessions()
    once = sessions.make_link(TOKEN, now=100.0)

    assert (sessions.redeem(once, TOKEN, now=100.0 + after_s) is not None) is works


def test_a_link_that_came_too_late_is_spent_all_the_same() -> None:
    sessions = Sessions()
    once = sessions.make_link(TOKEN, now=0.0)
    sessions.redeem(once, TOKEN, now=LINK_S)

    assert sessions.redeem(once, TOKEN, now=1.0) is None


@pytest.mark.parametrize(("after_s", "holds"), [(SESSION_S - 1, True), (SESSION_S, False)])
def test_a_session_lapses_and_is_forgotten(after_s: float, holds: bool) -> None:
    sessions = Sessions()
    secret = sessions.open(TOKEN, now=0.0)

    assert sessions.holds(secret, TOKEN, now=after_s) is holds
    assert len(sessions) == int(holds)


def test_a_new_operator_token_ends_the_sessions_and_links_of_the_old_one() -> None:
    sessions = Sessions()
    secret, once = sessions.open(TOKEN, now=0.0), sessions.make_link(TOKEN, now=0.0)

    assert not sessions.holds(secret, TOKEN + "2", now=1.0)
    assert sessions.redeem(once, TOKEN + "2", now=1.0) is None


def test_without_a_token_nobody_is_in() -> None:
    sessions = Sessions()
    once = sessions.make_link("", now=0.0)

    assert sessions.redeem(once, "", now=0.0) is None
    assert not sessions.holds(sessions.open("", now=0.0), "", now=0.0)


def test_signing_out_ends_this_session_and_no_other() -> None:
    sessions = Sessions()
    one, other = sessions.open(TOKEN, now=0.0), sessions.open(TOKEN, now=0.0)
    sessions.end(one)
    sessions.end("never was")

    assert not sessions.holds(one, TOKEN, now=1.0)
    assert sessions.holds(other, TOKEN, now=1.0)


def test_the_tables_are_bounded_and_the_oldest_goes() -> None:
    sessions = Sessions()
    opened = [sessions.open(TOKEN, now=0.0) for _ in range(SESSIONS_MAX + 1)]
    links = [sessions.make_link(TOKEN, now=0.0) for _ in range(LINKS_MAX + 1)]

    assert [sessions.holds(secret, TOKEN, now=1.0) for secret in opened] == [False] + [True] * SESSIONS_MAX
    assert sessions.redeem(links[0], TOKEN, now=1.0) is None
    assert sessions.redeem(links[-1], TOKEN, now=1.0) is not None


@pytest.mark.parametrize("guess", ["", "x", "\ud800", "é", "a" * 100_000])
def test_a_guess_is_no_session_and_no_link(guess: str) -> None:
    sessions = Sessions()
    sessions.open(TOKEN, now=0.0)
    sessions.make_link(TOKEN, now=0.0)

    assert not sessions.holds(guess, TOKEN, now=0.0)
    assert sessions.redeem(guess, TOKEN, now=0.0) is None


def test_secrets_are_kept_as_digests_only() -> None:
    sessions = Sessions()
    secret, once = sessions.open(TOKEN, now=0.0), sessions.make_link(TOKEN, now=0.0)
    kept = repr((sessions._links, sessions._sessions))

    assert secret not in kept
    assert once not in kept
    assert TOKEN not in kept
