"""Surplus round robin: shares are exact to a quantum and a cost, nobody starves, and debts are paid in rounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.services.omnigate.fair.chain import Chain, ChainNode
from penstock.services.omnigate.fair.rounds import DEBT_ROUNDS, Flow, Rounds

quanta = st.integers(1, 1000)
costs = st.lists(st.integers(1, 5000), min_size=1, max_size=8)


def serve(rounds: Rounds[Flow], flow: Flow, cost: int, *, more: bool = True) -> None:
    """Do what a queue does with the flow whose turn it is."""
    flow.charge(cost)
    if not more:
        rounds.leave(flow)


@given(st.lists(st.tuples(quanta, costs), min_size=2, max_size=6), st.integers(50, 400))
def test_backlogged_flows_get_what_their_quanta_say_to_within_a_quantum_and_a_cost(
    parties: list[tuple[int, list[int]]], dispatches: int
) -> None:
    rounds: Rounds[Flow] = Rounds()
    flows = [Flow(quantum) for quantum, _ in parties]
    for flow in flows:
        rounds.join(flow)
    served, turns = [0] * len(flows), [0] * len(flows)
    for _ in range(dispatches):
        flow = rounds.head()
        assert flow is not None
        index = flows.index(flow)
        menu = parties[index][1]
        # No cost above what a debt can hold: such a cost is cut by design.
        cost = min(menu[turns[index] % len(menu)], DEBT_ROUNDS * flow.quantum)
        turns[index] += 1
        served[index] += cost
        serve(rounds, flow, cost)

    shares = [done / flow.quantum for done, flow in zip(served, flows, strict=True)]
    slack = [2 + min(max(menu), DEBT_ROUNDS * quantum) / quantum for quantum, menu in parties]
    for one in range(len(flows)):
        for other in range(len(flows)):
            assert shares[one] - shares[other] <= slack[one] + slack[other]


@given(st.lists(st.tuples(quanta, st.integers(1, 2000)), min_size=1, max_size=6), quanta)
def test_a_flow_without_debt_is_served_after_at_most_one_turn_of_each_other(
    parties: list[tuple[int, int]], quantum: int
) -> None:
    rounds: Rounds[Flow] = Rounds()
    flows = {Flow(each): cost for each, cost in parties}
    for flow in flows:
        rounds.join(flow)
    for _ in range(50):
        flow = rounds.head()
        assert flow is not None
        serve(rounds, flow, flows[flow])
    late = Flow(quantum)
    rounds.join(late)
    # Whoever was in the middle of its turn may end it, and each may have one more before the newcomer.
    most = sum(2 * (each // cost + 1) for each, cost in parties)
    for count in range(most + 1):
        flow = rounds.head()
        if flow is late:
            break
        assert flow is not None
        serve(rounds, flow, flows[flow])
        assert count < most, "it starves"

    assert rounds.head() is late


def test_a_debtor_waits_as_many_rounds_as_it_owes_and_takes_no_empty_turn() -> None:
    rounds: Rounds[Flow] = Rounds()
    debtor, other = Flow(10), Flow(10)
    debtor.charge(55)
    rounds.join(debtor)
    rounds.join(other)
    before = rounds.steps
    order = []
    for _ in range(7):
        flow = rounds.head()
        assert flow is not None
        order.append("debtor" if flow is debtor else "other")
        serve(rounds, flow, 10)

    assert order == ["other"] * 5 + ["debtor", "other"]
    # At most seven turns filed again, seven rounds begun: not one step for the rounds that the debtor sat out.
    assert rounds.steps - before <= 14


def test_when_only_debtors_wait_the_next_is_served_at_once() -> None:
    rounds: Rounds[Flow] = Rounds()
    flows = [Flow(10) for _ in range(3)]
    for flow, debt in zip(flows, (600, 30, 300), strict=True):
        flow.charge(debt)
        rounds.join(flow)
    before = rounds.steps

    assert rounds.head() is flows[1]
    assert rounds.steps - before == 1


def test_a_charge_after_filing_puts_a_flow_off_instead_of_giving_it_credit() -> None:
    rounds: Rounds[Flow] = Rounds()
    charged, other = Flow(10), Flow(10)
    rounds.join(charged)
    rounds.join(other)
    charged.charge(35)

    assert rounds.head() is other
    serve(rounds, other, 10)
    assert rounds.head() is other
    serve(rounds, other, 10)
    serve_turns = 0
    while rounds.head() is other:
        serve(rounds, other, 10)
        serve_turns += 1
    assert rounds.head() is charged
    assert charged.deficit == 5
    assert serve_turns <= 2


def test_credit_is_lost_and_debt_is_kept_when_a_flow_runs_empty() -> None:
    rounds: Rounds[Flow] = Rounds()
    saver, spender = Flow(10), Flow(10)
    for flow, cost in ((saver, 3), (spender, 25)):
        rounds.join(flow)
        assert rounds.head() is flow
        serve(rounds, flow, cost, more=False)

    assert (saver.deficit, spender.deficit) == (0, -15)
    assert rounds.head() is None
    assert rounds.waiting == 0


@given(st.lists(st.integers(-1, 9), max_size=60))
def test_a_chain_is_a_list_from_which_anybody_may_leave(script: list[int]) -> None:
    chain: Chain[ChainNode] = Chain()
    nodes, model = [ChainNode() for _ in range(10)], []
    for step in script:
        if step < 0:
            assert chain.first is (model[0] if model else None)
            if model:
                model.pop(0).unlink()
        elif nodes[step].linked:
            nodes[step].unlink()
            model.remove(nodes[step])
        else:
            chain.append(nodes[step])
            model.append(nodes[step])
        assert chain.nodes() == model
