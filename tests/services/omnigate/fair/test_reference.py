"""The rounds against a plain simulator: one quantum a round for everybody who waits, no buckets, no shortcuts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.services.omnigate.fair.rounds import DEBT_ROUNDS, Flow, Rounds

QUANTA = (10, 10, 25, 100)
MOST_COST = 700


class Party:
    """One flow of the simulator."""

    def __init__(self, quantum: int) -> None:
        self.quantum = quantum
        self.deficit = 0
        self.waits = False
        # Whether its turn of this round is still to come or going on.
        self.on_turn = False


class Plain:
    """Surplus round robin as a textbook has it: walk all that wait, round after round."""

    def __init__(self, parties: list[Party]) -> None:
        self.parties = parties

    def join(self, party: Party) -> None:
        """Wait from the next round on."""
        party.waits, party.on_turn = True, False

    def leave(self, party: Party) -> None:
        """Wait no more; what is left of a turn is lost, and a debt is what it is by now."""
        party.waits = party.on_turn = False
        party.deficit = min(party.deficit, 0)

    def next_of(self) -> list[Party]:
        """Return whoever may be served next, beginning as many rounds as it takes."""
        waiting = [party for party in self.parties if party.waits]
        while waiting:
            for party in waiting:
                party.on_turn = party.on_turn and party.deficit > 0
            ready = [party for party in waiting if party.on_turn]
            if ready:
                return ready
            for party in waiting:
                party.deficit += party.quantum
                party.on_turn = True
        return []


def charge(flow: Flow, party: Party, cost: int) -> None:
    """Charge both, within the bound of a debt: what is cut there is another test's."""
    cost = min(cost, flow.deficit + DEBT_ROUNDS * flow.quantum)
    flow.charge(cost)
    party.deficit -= cost


steps = st.tuples(
    st.sampled_from(("join", "leave", "serve", "serve", "serve", "charge")),
    st.integers(0, len(QUANTA) - 1),
    st.integers(1, MOST_COST),
)


@settings(max_examples=500)
@given(st.lists(steps, max_size=120))
def test_whoever_is_served_is_one_whom_the_plain_simulator_would_serve_and_owes_the_same(
    script: list[tuple[str, int, int]],
) -> None:
    rounds: Rounds[Flow] = Rounds()
    flows = [Flow(quantum) for quantum in QUANTA]
    plain = Plain([Party(quantum) for quantum in QUANTA])
    for op, number, cost in script:
        flow, party = flows[number], plain.parties[number]
        if op == "join" and not party.waits:
            rounds.join(flow)
            plain.join(party)
        elif op == "leave" and party.waits:
            rounds.leave(flow)
            plain.leave(party)
            assert flow.deficit == party.deficit
        elif op == "charge":
            charge(flow, party, cost)
        elif op == "serve":
            chosen, ready = rounds.head(), plain.next_of()
            assert (chosen is None) == (not ready), "work conserving"
            if chosen is not None:
                party = plain.parties[flows.index(chosen)]
                assert party in ready
                assert chosen.deficit == party.deficit
                charge(chosen, party, cost)


def test_a_debtor_without_patience_is_done_paying_one_day() -> None:
    rounds: Rounds[Flow] = Rounds()
    debtor, other = Flow(10), Flow(10)
    debtor.charge(DEBT_ROUNDS * 10)
    rounds.join(other)

    served = [ask_five_times(rounds, debtor, other) for _ in range(DEBT_ROUNDS // 4)]

    assert any(served)


def ask_five_times(rounds: Rounds[Flow], debtor: Flow, other: Flow) -> bool:
    """Wait for five rounds at most; tell whether the debtor's turn came."""
    rounds.join(debtor)
    for _ in range(5):
        if rounds.head() is debtor:
            break
        other.charge(10)
    came = rounds.head() is debtor
    rounds.leave(debtor)
    return came
