------------------------------- MODULE Lookup -------------------------------
(* A lookup: it asks nodes it has heard of, whoever answers names more of them, and some never answer. At most Bound probes are
   in flight. Nobody is asked twice, and the lookup ends: everybody worth asking answered or failed. *)
EXTENDS Naturals, FiniteSets

CONSTANTS Nodes, Start, Bound, Remembers

VARIABLES known, asked, flight, answered, failed, done, twice
vars == <<known, asked, flight, answered, failed, done, twice>>

Init ==
    /\ known = Start /\ asked = {} /\ flight = {} /\ answered = {} /\ failed = {}
    /\ done = FALSE /\ twice = FALSE

Ask(n) ==
    /\ ~done /\ n \in known \ asked /\ Cardinality(flight) < Bound
    /\ asked' = asked \union {n} /\ flight' = flight \union {n}
    /\ twice' = (twice \/ n \in answered \union failed)
    /\ UNCHANGED <<known, answered, failed, done>>

(* An answer names any nodes. A lookup that does not remember whom it asked takes them for new. *)
Answer(n, named) ==
    /\ ~done /\ n \in flight
    /\ flight' = flight \ {n} /\ answered' = answered \union {n}
    /\ known' = known \union named
    /\ asked' = IF Remembers THEN asked ELSE asked \ (named \ flight)
    /\ UNCHANGED <<failed, done, twice>>

Fail(n) ==
    /\ ~done /\ n \in flight
    /\ flight' = flight \ {n} /\ failed' = failed \union {n}
    /\ UNCHANGED <<known, asked, answered, done, twice>>

End ==
    /\ ~done /\ flight = {} /\ known \subseteq asked
    /\ done' = TRUE
    /\ UNCHANGED <<known, asked, flight, answered, failed, twice>>

Settle == \E n \in Nodes : Fail(n) \/ \E named \in SUBSET Nodes : Answer(n, named)
Next == End \/ Settle \/ (\E n \in Nodes : Ask(n)) \/ (done /\ UNCHANGED vars)

Spec == Init /\ [][Next]_vars /\ WF_vars(End) /\ WF_vars(Settle) /\ WF_vars(\E n \in Nodes : Ask(n))

FlightBounded == Cardinality(flight) <= Bound
AskedOnce == ~twice
Whole == done => known = answered \union failed
Terminates == <>done
=============================================================================
