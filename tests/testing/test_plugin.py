"""The plugin runs async tests and fixtures, and each thing a test may leave behind fails it by name."""

from __future__ import annotations

import pytest

NO_HYPOTHESIS = "no:hypothesispytest"
HEAD = """
import asyncio, contextvars, gc, logging, socket, warnings
import pytest
from penstock.kernel.resource import Resource
from penstock.testing import leaks

async def boom():
    raise ValueError("lost")

class Handle(Resource):
    def __init__(self):
        self.opened("handle:17")
    async def _release(self):
        self.released = True
"""


@pytest.fixture
def run(pytester: pytest.Pytester):
    """Run a small test module under the plugin and count its outcomes."""

    def run(body: str, *args: str) -> pytest.RunResult:
        pytester.makepyfile(HEAD + body)
        # Hypothesis takes a second to import, and an inner run imports it anew: only where it is needed.
        plugins = ("penstock.testing.plugin", "no:cacheprovider", *(() if "hypothesis" in body else (NO_HYPOTHESIS,)))
        return pytester.runpytest_inprocess(*(f"-p{plugin}" for plugin in plugins), *args)

    return run


PLANTED = {
    "leaked task": ("asyncio.create_task(asyncio.sleep(5), name='stray')", "*leaked task: stray: sleep*"),
    "unobserved exception": (
        "asyncio.create_task(boom(), name='failed'); await asyncio.sleep(1)",
        "*unobserved exception*(failed)*ValueError('lost')*",
    ),
    "unobserved exception in a cycle": (
        "box = []; box.append((box, asyncio.create_task(boom(), name='failed'))); await asyncio.sleep(1)",
        "*unobserved exception*(failed)*",
    ),
    "coroutine never awaited": ("boom()", "*coroutine never awaited: coroutine 'boom' was never awaited*"),
    "failing callback": (
        "asyncio.get_running_loop().call_soon(lambda: 1 / 0); await asyncio.sleep(1)",
        "*exception in the loop*ZeroDivisionError*",
    ),
    "deadlock": ("await asyncio.Event().wait()", "*nothing can happen any more*"),
    "swallowed cancel": (
        """
    async def stubborn():
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue
    asyncio.create_task(stubborn(), name='stubborn')""",
        "*leaked task: stubborn*",
    ),
    "tracked resource": ("leaks.track('the door', lambda: True)", "*unclosed resource: the door*"),
    "open kernel resource": ("globals()['kept'] = Handle()", "*unclosed resource: handle:17*"),
    "dropped kernel resource": ("Handle()", "*resource dropped without close: handle:17*"),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_test_that_leaves_something_behind_fails_by_name(run, bug) -> None:
    body, told = PLANTED[bug]
    result = run(f"async def test_it():\n    {body}\n")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([told])


def test_a_test_that_cleans_up_passes(run) -> None:
    result = run("""
async def test_it():
    task = asyncio.create_task(asyncio.sleep(5))
    failed = asyncio.create_task(boom())
    await asyncio.wait([task, failed])
    assert isinstance(failed.exception(), ValueError)
    async with Handle():
        await asyncio.sleep(3600)
    cut = asyncio.create_task(asyncio.sleep(9))
    await asyncio.sleep(0)
    cut.cancel()
""")

    result.assert_outcomes(passed=1)


def test_one_test_does_not_answer_for_another(run) -> None:
    result = run("""
async def test_a():
    asyncio.create_task(asyncio.sleep(5))
    Handle()
async def test_b():
    await asyncio.sleep(1)
def test_c():
    assert True
""")

    result.assert_outcomes(failed=1, passed=2)


def test_a_failed_test_keeps_its_own_error_and_notes_what_it_left(run) -> None:
    result = run("""
async def test_it():
    asyncio.create_task(asyncio.sleep(5), name="stray")
    assert 1 == 2
""")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*assert 1 == 2*", "*leaked task: stray*"])


def test_async_fixtures_live_on_the_loop_and_in_the_context_of_their_test(run) -> None:
    result = run("""
V = contextvars.ContextVar("V")
ended = []

@pytest.fixture
async def server():
    V.set("from the fixture")
    stop = asyncio.Event()
    task = asyncio.create_task(stop.wait())
    yield asyncio.get_running_loop()
    stop.set()
    await task
    ended.append("server")

@pytest.fixture
async def late(server):
    await asyncio.sleep(60)
    return server.time()

async def test_it(server, late):
    assert server is asyncio.get_running_loop()
    assert late == server.time()
    assert V.get() == "from the fixture"

class TestMethods:
    @pytest.fixture
    async def own(self):
        self.mark = 1
        return self
    async def test_method(self, own):
        assert own is self and self.mark == 1

def test_end():
    assert ended == ["server"]
""")

    result.assert_outcomes(passed=3)


def test_what_a_fixture_leaves_behind_is_an_error_of_its_test(run) -> None:
    result = run("""
@pytest.fixture
async def leaky():
    asyncio.create_task(asyncio.sleep(5), name="stray")
    yield 1

async def test_it(leaky):
    assert leaky == 1
""")

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*leaked task: stray*"])


def test_a_fixture_that_outlives_its_test_or_yields_twice_is_refused(run) -> None:
    result = run("""
@pytest.fixture(scope="module")
async def wide():
    return 1
@pytest.fixture
async def twice():
    yield 1
    yield 2
async def test_wide(wide):
    assert wide
async def test_twice(twice):
    assert twice
""")

    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(["*must have function scope*", "*yields more than once*"])


def test_every_hypothesis_example_has_its_own_loop(run) -> None:
    result = run("""
from hypothesis import given, settings, strategies as st
loops = []

@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.integers())
async def test_good(number):
    loops.append(asyncio.get_running_loop())
    await asyncio.sleep(60)

def test_apart():
    assert len(set(loops)) == len(loops) >= 20

@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.integers())
async def test_bad(number):
    await asyncio.sleep(1)
    assert number < 100

@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.integers())
async def test_leaky(number):
    asyncio.create_task(asyncio.sleep(1), name="stray")
""")

    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["*number=100*", "*leaked task: stray*"])


def test_the_real_loop_is_chosen_by_its_mark(run) -> None:
    result = run("""
def kind():
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]

@pytest.mark.real_loop
async def test_default():
    pytest.importorskip("uvloop")
    assert kind() == "uvloop"

@pytest.mark.real_loop(loop="asyncio")
async def test_stock():
    assert kind() == "asyncio"
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()

async def test_virtual():
    assert kind() == "penstock"

@pytest.mark.real_loop(loop="trio")
async def test_unknown():
    assert kind()
""")

    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(['*is "uvloop" or "asyncio", not \'trio\'*'])


def test_the_watchdog_ends_a_real_test_that_hangs_even_one_that_ignores_cancel(run) -> None:
    result = run("""
@pytest.mark.real_loop(watchdog_s=0.05, loop="asyncio")
async def test_hangs():
    await asyncio.Event().wait()

@pytest.mark.real_loop(watchdog_s=0.05, loop="asyncio")
async def test_swallows():
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return
""")

    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*not done after 0.05 s*", "*test_hangs*Event.wait*", "*not done after 0.05 s*"])


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_socket_left_open_on_the_real_loop_fails(run, loop) -> None:
    result = run(f"""
@pytest.mark.real_loop(loop="{loop}")
async def test_it():
    socket.socket()
""")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*unclosed resource: unclosed <socket*"])


def test_other_warnings_pass_through_to_pytest(run) -> None:
    result = run(
        """
async def test_it():
    warnings.warn("for the reader", UserWarning)
""",
        "-Wdefault",
    )

    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*for the reader*"])


def test_a_skip_inside_an_async_test_is_a_skip(run) -> None:
    result = run("""
async def test_it():
    pytest.skip("not today")
""")

    result.assert_outcomes(skipped=1)


def test_it_works_under_xdist(run) -> None:
    result = run(
        """
async def test_a():
    await asyncio.sleep(1)
async def test_b():
    asyncio.create_task(asyncio.sleep(5), name="stray")
""",
        "-n2",
        "-p",
        "xdist",
    )

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*leaked task: stray*"])
