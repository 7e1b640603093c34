------------------------------- MODULE Bucket -------------------------------
(* A k-bucket behind its queue. Producers put commands in, a writer takes them out one after the other. Taking a command and
   applying it are two steps: what a writer decided on may have changed by the time it acts, unless nobody else writes.
   With one writer no node is ever held twice, the bucket never holds more than K, and a live contact is never dropped. *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS Nodes, Writers, K, Capacity, None

VARIABLES queue, bucket, spares, alive, hand
vars == <<queue, bucket, spares, alive, hand>>

Held(s) == {s[i] : i \in 1..Len(s)}
Without(s, n) == SelectSeq(s, LAMBDA m : m # n)
Commands == {"insert", "evict"} \X Nodes

Init ==
    /\ queue = <<>> /\ bucket = <<>> /\ spares = {}
    /\ alive = Nodes
    /\ hand = [w \in Writers |-> None]

(* A contact that answered is offered; one that did not answer a ping is to go. *)
Offer(n) ==
    /\ n \in alive /\ Len(queue) < Capacity
    /\ queue' = Append(queue, <<"insert", n>>)
    /\ UNCHANGED <<bucket, spares, alive, hand>>

Doubt(n) ==
    /\ n \notin alive /\ n \in Held(bucket) /\ Len(queue) < Capacity
    /\ queue' = Append(queue, <<"evict", n>>)
    /\ UNCHANGED <<bucket, spares, alive, hand>>

Die(n) ==
    /\ n \in alive
    /\ alive' = alive \ {n}
    /\ UNCHANGED <<queue, bucket, spares, hand>>

(* The writer looks at the bucket when it takes a command ... *)
Take(w) ==
    /\ hand[w] = None /\ queue # <<>>
    /\ LET n == Head(queue)[2] IN
       hand' = [hand EXCEPT ![w] = <<Head(queue)[1], n, n \in Held(bucket), Len(bucket) < K>>]
    /\ queue' = Tail(queue)
    /\ UNCHANGED <<bucket, spares, alive>>

(* ... and acts on what it saw. *)
Insert(n, known, room) ==
    IF known THEN /\ bucket' = Append(Without(bucket, n), n) /\ spares' = spares
    ELSE IF room THEN /\ bucket' = Append(bucket, n) /\ spares' = spares \ {n}
    ELSE /\ bucket' = bucket /\ spares' = spares \union {n}

Evict(n, known) ==
    IF ~known THEN /\ bucket' = bucket /\ spares' = spares \ {n}
    ELSE IF spares \ {n} = {} THEN /\ bucket' = Without(bucket, n) /\ spares' = spares \ {n}
    ELSE LET m == CHOOSE m \in spares \ {n} : TRUE IN
         /\ bucket' = Append(Without(bucket, n), m) /\ spares' = spares \ {n, m}

Apply(w) ==
    /\ hand[w] # None
    /\ LET c == hand[w] IN
       IF c[1] = "insert" THEN Insert(c[2], c[3], c[4]) ELSE Evict(c[2], c[3])
    /\ hand' = [hand EXCEPT ![w] = None]
    /\ UNCHANGED <<queue, alive>>

Next ==
    \/ \E n \in Nodes : Offer(n) \/ Doubt(n) \/ Die(n)
    \/ \E w \in Writers : Take(w) \/ Apply(w)
    \/ UNCHANGED vars

Spec == Init /\ [][Next]_vars /\ \A w \in Writers : WF_vars(Take(w)) /\ WF_vars(Apply(w))

NoDuplicate == Cardinality(Held(bucket)) = Len(bucket)
Bounded == Len(bucket) <= K
OnePlace == Held(bucket) \intersect spares = {}
LiveStay == [][\A n \in alive : n \in Held(bucket) => n \in Held(bucket')]_vars
Drained == (Len(queue) > 0) ~> (\E w \in Writers : hand[w] # None)
=============================================================================
