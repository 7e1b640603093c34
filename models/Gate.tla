--------------------------------- MODULE Gate --------------------------------
(* Admission against drain, as in services/omnigate/gate: a request finds a     *)
(* free slot and runs, takes a place and waits, or is refused. Whoever ends     *)
(* hands its slot on. A client may go away while it waits. A gateway that       *)
(* drains refuses new requests and is stopped when nobody runs or waits.        *)
(* Proved: slots and places are bounded, nobody overtakes those who wait when a *)
(* slot is free, nobody waits for ever, and the drain ends.                     *)
EXTENDS Integers, FiniteSets

CONSTANTS
    Requests,  \* who may come
    Slots,     \* how many run at once
    Places,    \* how many may wait
    HandsOn    \* TRUE: a slot that falls free is given to who waits; FALSE (planted): it is not

VARIABLES
    state,     \* out, waiting, running, over, refused
    phase      \* running, draining, stopped

vars == <<state, phase>>

In(what) == {r \in Requests : state[r] = what}

Init ==
    /\ state = [r \in Requests |-> "out"]
    /\ phase = "running"

Arrive(r) ==
    /\ state[r] = "out"
    /\ state' = [state EXCEPT ![r] =
           IF phase # "running" THEN "refused"
           ELSE IF Cardinality(In("running")) < Slots /\ In("waiting") = {} THEN "running"
           ELSE IF Cardinality(In("waiting")) < Places THEN "waiting"
           ELSE "refused"]
    /\ UNCHANGED phase

Turn(r) ==
    /\ HandsOn
    /\ state[r] = "waiting"
    /\ Cardinality(In("running")) < Slots
    /\ state' = [state EXCEPT ![r] = "running"]
    /\ UNCHANGED phase

End(r) ==
    /\ state[r] = "running"
    /\ state' = [state EXCEPT ![r] = "over"]
    /\ UNCHANGED phase

(* The client goes away while it waits. *)
Leave(r) ==
    /\ state[r] = "waiting"
    /\ state' = [state EXCEPT ![r] = "over"]
    /\ UNCHANGED phase

Drain == phase = "running" /\ phase' = "draining" /\ UNCHANGED state

Stopped ==
    /\ phase = "draining"
    /\ In("running") = {} /\ In("waiting") = {} /\ In("out") = {}
    /\ phase' = "stopped"
    /\ UNCHANGED state

Next ==
    \/ \E r \in Requests : Arrive(r) \/ Turn(r) \/ End(r) \/ Leave(r)
    \/ Drain \/ Stopped
    \/ phase = "stopped" /\ UNCHANGED vars

Spec ==
    /\ Init /\ [][Next]_vars
    /\ WF_vars(Drain) /\ WF_vars(Stopped)
    /\ \A r \in Requests : WF_vars(Arrive(r)) /\ WF_vars(Turn(r)) /\ WF_vars(End(r))

-------------------------------------------------------------------------------
Bounded == Cardinality(In("running")) <= Slots /\ Cardinality(In("waiting")) <= Places

NothingHeld == phase = "stopped" => In("running") = {} /\ In("waiting") = {}

NobodyWaitsForEver == \A r \in Requests : (state[r] = "waiting") ~> (state[r] # "waiting")

Ends == <>(phase = "stopped")
===============================================================================
