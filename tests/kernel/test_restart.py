"""What follows an exit: the whole grid of policy and exit, cell by cell, and the crash loop both ways."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernel.backoff import FullJitter
from penstock.kernel.restart import Action, Escalation, Exit, History, Restart, RestartPolicy, verdict
from tests.kernel.kit import Loaded

GRID = {
    (Restart.PERMANENT, Exit.RETURNED): Action.RESTART,
    (Restart.PERMANENT, Exit.CRASHED): Action.RESTART,
    (Restart.PERMANENT, Exit.KILLED): Action.RESTART,
    (Restart.PERMANENT, Exit.STOPPED): Action.FINISH,
    (Restart.TRANSIENT, Exit.RETURNED): Action.FINISH,
    (Restart.TRANSIENT, Exit.CRASHED): Action.RESTART,
    (Restart.TRANSIENT, Exit.KILLED): Action.RESTART,
    (Restart.TRANSIENT, Exit.STOPPED): Action.FINISH,
    (Restart.TEMPORARY, Exit.RETURNED): Action.FINISH,
    (Restart.TEMPORARY, Exit.CRASHED): Action.FINISH,
    (Restart.TEMPORARY, Exit.KILLED): Action.FINISH,
    (Restart.TEMPORARY, Exit.STOPPED): Action.FINISH,
}
CRASHES = (Exit.CRASHED, Exit.KILLED)


def _cell(value) -> str:
    return "-".join(part.value for part in value) if isinstance(value, tuple) else value.value


@pytest.mark.parametrize(("cell", "action"), GRID.items(), ids=_cell)
def test_the_first_exit_leads_to(cell, action) -> None:
    restart, ended = cell
    decision = verdict(RestartPolicy(restart=restart), ended, History(), 1000.0, Loaded(0.5))

    assert decision.action is action
    assert len(decision.history.crashes) == (ended in CRASHES and restart is not Restart.TEMPORARY)
    assert decision.delay_s == (0.05 if action is Action.RESTART else 0.0)


def test_the_grid_is_complete() -> None:
    assert set(GRID) == {(restart, ended) for restart in Restart for ended in Exit}


def _crash_at(policy: RestartPolicy, times: list[float], history: History | None = None):
    """Crash at these instants, each after a run that began just before."""
    decision = None
    history = history or History()
    for at in times:
        decision = verdict(policy, Exit.CRASHED, history.started(at - 0.01), at, Loaded(0.5))
        history = decision.history
    return decision


@pytest.mark.parametrize(
    ("escalation", "action"), [(Escalation.QUARANTINE, Action.QUARANTINE), (Escalation.FATAL, Action.FATAL)]
)
def test_the_sixth_crash_within_a_minute_escalates_and_the_fifth_does_not(escalation, action) -> None:
    policy = RestartPolicy(escalation=escalation)

    assert _crash_at(policy, [0, 10, 20, 30, 40]).action is Action.RESTART
    assert _crash_at(policy, [0, 10, 20, 30, 40, 59.9]).action is action
    assert _crash_at(policy, [0, 10, 20, 30, 40, 60.0]).action is Action.RESTART


def test_crashes_spread_over_time_never_escalate() -> None:
    assert _crash_at(RestartPolicy(), [12.5 * n for n in range(1, 200)]).action is Action.RESTART


def test_a_quarantined_child_waits_its_time_and_goes_straight_back_when_it_crashes_again() -> None:
    decision = _crash_at(RestartPolicy(), [1, 2, 3, 4, 5, 6])
    assert (decision.action, decision.delay_s) == (Action.QUARANTINE, 60.0)

    again = verdict(RestartPolicy(), Exit.CRASHED, decision.history.started(66.0), 125.0, Loaded(0.5))
    assert again.action is Action.QUARANTINE


def test_a_quarantined_child_that_was_healthy_for_a_minute_is_trusted_again() -> None:
    decision = _crash_at(RestartPolicy(), [1, 2, 3, 4, 5, 6])
    later = verdict(RestartPolicy(), Exit.CRASHED, decision.history.started(66.0), 126.0, Loaded(0.5))

    assert (later.action, later.delay_s) == (Action.RESTART, 0.05)
    assert not later.history.quarantined


@pytest.mark.parametrize("cap_s", [5.0, 60.0, 30.0])
def test_the_pause_doubles_up_to_the_cap_and_starts_anew_after_a_minute_of_health(cap_s) -> None:
    policy = RestartPolicy(backoff=FullJitter(0.1, cap_s), crashes_max=100)
    history, delays = History(), []
    for n in range(12):
        decision = verdict(policy, Exit.CRASHED, history.started(n), n + 0.5, Loaded(0.999999))
        history = decision.history
        delays.append(round(decision.delay_s, 3))
    assert delays == [min(round(0.1 * 2**n, 3), cap_s) for n in range(12)]

    reset = verdict(policy, Exit.CRASHED, history.started(100.0), 160.0, Loaded(0.999999))
    assert reset.delay_s == pytest.approx(0.1, rel=1e-3)
    unripe = verdict(policy, Exit.CRASHED, history.started(100.0), 159.9, Loaded(0.999999))
    assert unripe.delay_s == pytest.approx(cap_s, rel=1e-3)


_RUNS = st.lists(st.tuples(st.sampled_from(Exit), st.floats(0.01, 90)), max_size=40)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(Restart), st.sampled_from(Escalation), _RUNS, st.floats(0, 0.999))
def test_no_history_grows_and_no_pause_exceeds_its_cap(restart, escalation, exits, face) -> None:
    policy, history, at = RestartPolicy(restart=restart, escalation=escalation), History(), 0.0
    for ended, ran_s in exits:
        history = history.started(at)
        at += ran_s
        decision = verdict(policy, ended, history, at, Loaded(face))
        history = decision.history
        if ended in CRASHES:
            assert all(at - crash <= policy.window_s for crash in history.crashes)
        assert len(history.crashes) <= policy.crashes_max + 1 or history.quarantined
        if decision.action is Action.RESTART:
            assert 0 <= decision.delay_s <= policy.backoff.cap_s
