"""Which check catches which planted bug."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.kernel.backoff import RetryBudget
from penstock.kernel.breaker import Breaker
from penstock.kernel.broadcast import Broadcast
from penstock.kernel.channel import Channel
from penstock.kernel.deadline import timeout
from penstock.kernel.limiter import ByteBudget, Limiter, TokenBucket
from penstock.kernel.lock import Lock
from penstock.kernel.scope import Scope
from penstock.kernel.supervisor import Supervisor
from penstock.kernel.watch import Watch
from penstock.kernel.worker import JobLoop
from tests.kernel.checks import channel as c
from tests.kernel.checks import deadline as d
from tests.kernel.checks import drain as n
from tests.kernel.checks import limits as m
from tests.kernel.checks import supervision as s
from tests.kernel.checks import watch as w
from tests.kernel.checks import worker as j
from tests.kernel.twins import channel as channels
from tests.kernel.twins import deadline as deadlines
from tests.kernel.twins import limits
from tests.kernel.twins import supervision as bosses
from tests.kernel.twins import watch as watches
from tests.kernel.twins import worker as workers


@dataclass(frozen=True, slots=True)
class Planted:
    """A check, what must pass it and what must not."""

    check: Callable[[Any], None]
    real: Any
    twin: Any

    def __str__(self) -> str:
        """Name the pair in a test's id."""
        return f"{self.check.__name__.removeprefix('check_')}-{self.twin.__name__}"


PLANTED = [
    Planted(c.check_capacity_is_never_exceeded, Channel, channels.Unbounded),
    Planted(c.check_a_full_channel_refuses_and_keeps_its_items, Channel, channels.CountsRefusalTwice),
    Planted(c.check_a_full_channel_refuses_and_keeps_its_items, Channel, channels.Unbounded),
    Planted(c.check_drop_oldest_keeps_the_newest_and_counts_each_loss, Channel, channels.DropsNewest),
    Planted(c.check_items_come_out_in_the_order_they_went_in, Channel, channels.LastInFirstOut),
    Planted(c.check_closing_refuses_senders_and_keeps_what_is_there, Channel, channels.ForgetsOnClose),
    Planted(c.check_closing_wakes_every_receiver, Channel, channels.WakesOneOnClose),
    Planted(c.check_a_cancelled_receiver_loses_nothing, Channel, channels.PopsIntoFuture),
    Planted(c.check_a_woken_receiver_that_is_cancelled_passes_its_wake_on, Channel, channels.KeepsTheWake),
    Planted(c.check_a_woken_sender_that_is_cancelled_passes_its_wake_on, Channel, channels.KeepsTheWake),
    Planted(c.check_a_waiting_sender_gives_up_after_its_limit_and_is_counted_once, Channel, channels.GivesUpUncounted),
    Planted(c.check_a_suspended_channel_refuses_and_keeps_what_is_queued, Channel, channels.TakesWorkWhileSuspended),
    Planted(c.check_suspending_refuses_those_who_wait_for_a_place, Channel, channels.LetsSendersWaitWhileSuspended),
    Planted(w.check_a_write_before_subscribing_is_not_missed, Watch, watches.ForgetsTheWriteBefore),
    Planted(w.check_a_write_between_two_looks_is_not_missed, Watch, watches.WaitsForTheNextWrite),
    Planted(w.check_every_waiter_sees_the_change, Watch, watches.WakesOne),
    Planted(w.check_a_cancelled_waiter_leaves_nothing_behind, Watch, watches.KeepsTheDead),
    Planted(w.check_a_slow_receiver_learns_once_how_many_messages_it_lost, Broadcast, watches.CountsEventsNotMessages),
    Planted(w.check_a_receiver_exactly_at_capacity_has_lost_nothing, Broadcast, watches.LosesOneAtCapacity),
    Planted(w.check_receivers_lag_independently, Broadcast, watches.MovesEveryCursor),
    Planted(w.check_a_closed_broadcast_gives_what_is_unseen_then_ends, Broadcast, watches.EndsAtOnce),
    Planted(w.check_a_cancelled_broadcast_receiver_loses_nothing, Broadcast, watches.ClaimsBeforeItWaits),
    Planted(d.check_a_late_block_is_cut_with_its_name_and_budget, timeout, deadlines.never_fires),
    Planted(d.check_a_nested_timeout_is_clipped_by_the_outer_deadline, timeout, deadlines.ignores_the_outer_deadline),
    Planted(d.check_a_cancel_from_outside_wins_over_the_timer, timeout, deadlines.takes_every_cancel_for_its_own),
    Planted(d.check_a_cancel_in_the_same_step_as_the_timer_wins, timeout, deadlines.swallows_the_outer_cancel),
    Planted(d.check_a_timeout_leaves_the_task_uncancelled, timeout, deadlines.leaves_the_cancel_count),
    Planted(d.check_cleanup_of_a_cancelled_task_may_use_a_timeout, timeout, deadlines.counts_from_zero),
    Planted(d.check_a_block_that_ends_in_time_is_left_alone, timeout, deadlines.fires_after_the_block),
    Planted(d.check_locks_are_taken_in_rank_order, Lock, deadlines.Unranked),
    Planted(d.check_a_lock_held_across_an_await_is_found, Lock, deadlines.Unwatched),
    Planted(d.check_a_scope_is_bounded, Scope, deadlines.UnboundedScope),
    Planted(d.check_a_closed_scope_has_no_task_left, Scope, deadlines.LeakingScope),
    Planted(d.check_a_scope_counts_what_it_cut_once, Scope, deadlines.RecountingScope),
    Planted(d.check_close_is_idempotent, deadlines.Held, deadlines.ClosesTwice),
    Planted(d.check_a_dropped_resource_is_only_told_about, deadlines.Held, deadlines.WorksInDel),
    Planted(s.check_a_crashed_child_is_restarted_after_a_growing_pause, Supervisor, bosses.RestartsAtOnce),
    Planted(s.check_a_clean_return_is_not_a_crash, Supervisor, bosses.CountsReturnsAsCrashes),
    Planted(
        s.check_a_permanent_child_that_returns_does_not_count_as_a_crash, Supervisor, bosses.CountsReturnsAsCrashes
    ),
    Planted(s.check_the_sixth_crash_in_a_minute_quarantines, Supervisor, bosses.NeverEscalates),
    Planted(s.check_a_crash_loop_of_the_fatal_kind_is_told_once, Supervisor, bosses.QuarantinesTheFatal),
    Planted(s.check_children_start_in_order_and_stop_in_reverse, Supervisor, bosses.StopsInStartOrder),
    Planted(s.check_a_failed_start_stops_what_was_started, Supervisor, bosses.LeavesAHalfStart),
    Planted(s.check_a_child_that_ends_before_it_announced_fails_the_start_at_once, Supervisor, bosses.WaitsForTheLeft),
    Planted(s.check_a_gate_stays_shut_until_its_child_announced_itself, Supervisor, bosses.OpensGatesEarly),
    Planted(s.check_a_child_killed_twice_in_a_row_is_restarted, Supervisor, bosses.KillsBetweenRuns),
    Planted(s.check_a_cancelled_error_of_nobodys_is_a_crash, Supervisor, bosses.DiesOfStrayCancels),
    Planted(s.check_an_abort_that_meets_a_kill_wins, Supervisor, bosses.SwallowsTheAbort),
    Planted(s.check_scopes_end_with_the_run_of_their_child, Supervisor, bosses.LeavesScopesRunning),
    Planted(
        s.check_a_worker_that_crashes_on_sight_does_not_hold_the_loop_while_draining,
        Supervisor,
        bosses.SpinsWhileDraining,
    ),
    Planted(s.check_a_restarted_worker_finishes_admitted_work_while_draining, Supervisor, bosses.LeavesWorkBehind),
    Planted(s.check_flips_of_a_gate_are_told, Supervisor, bosses.Mute),
    Planted(n.check_admitted_requests_are_answered, Supervisor, bosses.ClosesChannelsFirst),
    Planted(n.check_a_restarted_intake_is_waited_for_as_well, Supervisor, bosses.ForgetsNewQuiet),
    Planted(n.check_what_is_late_is_cut_off_at_the_deadline, Supervisor, bosses.WaitsForTheLate),
    Planted(n.check_what_was_cut_off_is_counted, Supervisor, bosses.KeepsNoAccount),
    Planted(n.check_what_ignores_the_abort_is_given_up_after_250_ms, Supervisor, bosses.WaitsForTheLate),
    Planted(n.check_a_second_drain_joins_the_first, Supervisor, bosses.DrainsAnew),
    Planted(n.check_hurry_cuts_the_deadline, Supervisor, bosses.CannotHurry),
    Planted(n.check_a_kept_intake_stays_until_it_is_drained_itself, Supervisor, bosses.ClosesTheIntakeToo),
    Planted(j.check_closing_ends_a_worker_only_after_the_last_job, JobLoop, workers.BreaksOnShutdown),
    Planted(j.check_a_job_that_raises_is_internal_and_the_worker_goes_on, JobLoop, workers.DiesOfABadJob),
    Planted(j.check_a_condition_reaches_the_sender_as_it_is, JobLoop, workers.HidesConditions),
    Planted(j.check_a_job_that_awaited_something_cancelled_is_a_failed_job, JobLoop, workers.DiesOfStrayCancels),
    Planted(j.check_a_hundred_failed_jobs_in_a_row_are_a_crash, JobLoop, workers.ToleratesEverything),
    Planted(j.check_a_restarted_worker_is_judged_anew, JobLoop, workers.BearsAGrudge),
    Planted(j.check_a_killed_worker_answers_the_job_in_its_hands, JobLoop, workers.LeavesTheSenderWaiting),
    Planted(j.check_a_withdrawn_job_is_not_worked_on, JobLoop, workers.WorksForNobody),
    Planted(j.check_a_job_whose_time_is_up_gets_a_timeout_unworked, JobLoop, workers.IgnoresTheDeadline),
    Planted(j.check_deadline_and_corr_id_cross_the_channel, JobLoop, workers.ForgetsTheContext),
    Planted(j.check_a_full_shop_refuses_at_once, JobLoop, workers.TakesAllAtOnce),
    Planted(m.check_permits_are_taken_all_together_or_not_at_all, Limiter, limits.TakesWhatIsThere),
    Planted(m.check_permits_are_given_back_at_most_once, Limiter, limits.TrustsReleases),
    Planted(m.check_no_share_takes_more_than_its_part_and_the_sum_holds, ByteBudget, limits.SharesWithoutBound),
    Planted(m.check_a_bucket_never_lets_more_through_than_rate_and_depth, TokenBucket, limits.Bottomless),
    Planted(m.check_a_clock_that_went_back_gives_no_tokens, TokenBucket, limits.FollowsTheClockBack),
    Planted(m.check_delays_stay_within_the_seeds_windows, limits.seeds_schedule, limits.unjittered),
    Planted(m.check_retries_are_a_tenth_of_the_calls_but_never_under_three_a_second, RetryBudget, limits.NoFloor),
    Planted(m.check_retries_are_a_tenth_of_the_calls_but_never_under_three_a_second, RetryBudget, limits.NoWindow),
    Planted(m.check_timeouts_in_a_row_open_a_breaker, Breaker, limits.Deaf),
    Planted(m.check_only_so_many_probes_go_out, Breaker, limits.UncountedProbes),
    Planted(m.check_a_failed_probe_opens_again_for_the_full_time, Breaker, limits.ForgivesTooSoon),
    Planted(m.check_an_answer_from_before_the_opening_is_no_probe, Breaker, limits.BelievesOldNews),
    Planted(m.check_an_abandoned_probe_frees_its_place, Breaker, limits.KeepsThePlace),
    Planted(m.check_the_error_rate_of_the_window_opens_a_breaker, Breaker, limits.JudgesAllTime),
    Planted(m.check_a_slow_p95_opens_a_breaker, Breaker, limits.JudgesTheMaximum),
]
