------------------------------ MODULE FairRounds ------------------------------
(* Surplus round robin with debts, as in services/omnigate/fair/rounds.py.      *)
(* A flow is filed under the round in which it will be above zero again; it is  *)
(* served while its deficit is above zero; settlements may charge it later.     *)
(* Proved: deficits stay bounded, every flow that waits is filed exactly once,  *)
(* and nobody who waits starves, whatever the others send and owe.              *)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Flows,       \* who shares
    Quanta,      \* what each gets a turn: a function of Flows
    MostCost,    \* the largest cost of one request
    MostExtra,   \* the largest surprise at its settlement
    DebtRounds,  \* the largest debt, in quanta
    Places,      \* how many requests of a flow may wait
    MostOpen,    \* how many served requests of a flow may be unsettled
    JoinsLate    \* TRUE: a flow joins the next round; FALSE (planted): the present one

VARIABLES
    waiting,     \* requests that wait, by flow
    deficit,     \* what a flow has left or owes
    credit,      \* the quanta it gets when its turn comes
    buckets,     \* flows by the round of their next turn
    now,         \* the present round
    open,        \* served and not settled, by flow
    served       \* whom the last step served, or nobody

vars == <<waiting, deficit, credit, buckets, now, open, served>>

Nobody == "nobody"
Size == DebtRounds + 1
Least(f) == -(DebtRounds * Quanta[f])
Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b

RoundsOwed(f, d) == Min(((-d) \div Quanta[f]) + 1, DebtRounds)

(* File a flow so many rounds ahead. *)
File(f, ahead, table) == [table EXCEPT ![(now + ahead) % Size] = Append(@, f)]

Occupied == {i \in 0..(Size - 1) : buckets[i] # <<>>}
Ahead(i) == (i - now + Size) % Size
Next1 == CHOOSE i \in Occupied : \A j \in Occupied : Ahead(i) <= Ahead(j)

Init ==
    /\ waiting = [f \in Flows |-> 0]
    /\ deficit = [f \in Flows |-> 0]
    /\ credit = [f \in Flows |-> 0]
    /\ buckets = [i \in 0..(Size - 1) |-> <<>>]
    /\ now = 0
    /\ open = [f \in Flows |-> 0]
    /\ served = Nobody

Arrive(f) ==
    /\ waiting[f] < Places
    /\ waiting' = [waiting EXCEPT ![f] = @ + 1]
    /\ served' = Nobody
    /\ IF waiting[f] = 0
         THEN /\ buckets' = File(f, IF JoinsLate THEN RoundsOwed(f, deficit[f]) ELSE 0, buckets)
              /\ credit' = [credit EXCEPT ![f] = RoundsOwed(f, deficit[f])]
         ELSE UNCHANGED <<buckets, credit>>
    /\ UNCHANGED <<deficit, now, open>>

Turn ==
    /\ Occupied # {}
    /\ buckets[now] = <<>>
    /\ now' = Next1
    /\ served' = Nobody
    /\ UNCHANGED <<waiting, deficit, credit, buckets, open>>

Credited(f) == deficit[f] + credit[f] * Quanta[f]

(* Its turn has come, but it was charged since it was filed, or has spent all. *)
PutOff(f) ==
    /\ Credited(f) <= 0
    /\ deficit' = [deficit EXCEPT ![f] = Credited(f)]
    /\ credit' = [credit EXCEPT ![f] = RoundsOwed(f, Credited(f))]
    /\ buckets' = File(f, RoundsOwed(f, Credited(f)), [buckets EXCEPT ![now] = Tail(@)])
    /\ served' = Nobody
    /\ UNCHANGED <<waiting, now, open>>

Serve(f) ==
    /\ Credited(f) > 0
    /\ open[f] < MostOpen
    /\ open' = [open EXCEPT ![f] = @ + 1]
    /\ served' = f
    /\ waiting' = [waiting EXCEPT ![f] = @ - 1]
    /\ credit' = [credit EXCEPT ![f] = 0]
    /\ \E cost \in 1..MostCost :
         LET left == Max(Credited(f) - cost, Least(f))
         IN IF waiting[f] = 1
              THEN /\ buckets' = [buckets EXCEPT ![now] = Tail(@)]
                   /\ deficit' = [deficit EXCEPT ![f] = Min(left, 0)]
              ELSE /\ deficit' = [deficit EXCEPT ![f] = left]
                   /\ UNCHANGED buckets
    /\ UNCHANGED now

Head1 == /\ buckets[now] # <<>>
         /\ LET f == Head(buckets[now]) IN PutOff(f) \/ Serve(f)

Settle(f) ==
    /\ open[f] > 0
    /\ open' = [open EXCEPT ![f] = @ - 1]
    /\ served' = Nobody
    /\ \E extra \in 0..MostExtra :
         deficit' = [deficit EXCEPT ![f] = Max(@ - extra, Least(f))]
    /\ UNCHANGED <<waiting, credit, buckets, now>>

Dispatch == Turn \/ Head1

Next == Dispatch \/ \E f \in Flows : Arrive(f) \/ Settle(f)

Spec == Init /\ [][Next]_vars /\ WF_vars(Dispatch) /\ \A f \in Flows : WF_vars(Settle(f))

-------------------------------------------------------------------------------
Places1(f) == {<<i, k>> \in (0..(Size - 1)) \X (1..Cardinality(Flows)) :
                   k <= Len(buckets[i]) /\ buckets[i][k] = f}

Bounded == \A f \in Flows :
    /\ deficit[f] >= Least(f)
    /\ deficit[f] <= Quanta[f]
    /\ waiting[f] \in 0..Places

FiledOnce == \A f \in Flows : Cardinality(Places1(f)) = IF waiting[f] > 0 THEN 1 ELSE 0

NobodyStarves == \A f \in Flows : (waiting[f] > 0) ~> (served = f)
===============================================================================
