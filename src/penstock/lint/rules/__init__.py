"""The rules, in the order of their codes; one module a concern.

locks         no lock across an await
queues        bounded and declared
tasks         tasks, callbacks and threads have a parent
blocking      calls that stop the loop, and finalizers that do work
deadlines     a wait for somebody else has a limit
clocks        which clock decides, and which is only stored
cancellation  a cancel passes through, and clean-up is bounded
banned        APIs with known faults
"""

from __future__ import annotations

from penstock.lint.finding import LintRule
from penstock.lint.rules.banned import banned_api
from penstock.lint.rules.blocking import blocking_call, busy_finalizer
from penstock.lint.rules.cancellation import broad_except, swallowed_cancel, unbounded_cleanup
from penstock.lint.rules.clocks import wall_clock, wall_time_outside_storage
from penstock.lint.rules.deadlines import deaf_sleep, no_deadline, sleep_in_test
from penstock.lint.rules.locks import async_lock, lock_across_await
from penstock.lint.rules.queues import unbounded_queue, undeclared_queue
from penstock.lint.rules.tasks import stray_callback, stray_task, stray_thread

RULES: tuple[LintRule, ...] = (
    lock_across_await,
    async_lock,
    unbounded_queue,
    undeclared_queue,
    stray_task,
    stray_callback,
    stray_thread,
    blocking_call,
    no_deadline,
    deaf_sleep,
    wall_clock,
    wall_time_outside_storage,
    swallowed_cancel,
    unbounded_cleanup,
    broad_except,
    busy_finalizer,
    banned_api,
    sleep_in_test,
)
