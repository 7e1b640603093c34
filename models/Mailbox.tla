------------------------------- MODULE Mailbox -------------------------------
(* At least once delivery, as in services/mailbox: a message is sent, leased by *)
(* a receiver, and acked, given back, kept longer, or its lease runs out; after *)
(* so many deliveries it is a dead letter. A lease is named by its receipt; a   *)
(* receipt of an earlier lease does nothing. A worker may crash: what was not   *)
(* written, the leases, is gone, and what was written is there.                 *)
(* Proved: a message is never lost, never delivered again after its ack, acked  *)
(* at most once, and becomes a dead letter at most once; and every message is   *)
(* settled in the end if receivers go on.                                       *)
EXTENDS Integers, FiniteSets

CONSTANTS
    Messages,     \* what may be sent
    Deliveries,   \* after so many a message is a dead letter
    Crashes,      \* how often the worker may crash
    ChecksReceipt \* TRUE: an ack needs the receipt of the lease; FALSE (planted): any receipt will do

VARIABLES
    state,        \* none, ready, leased, acked, dead
    tries,        \* how often a message was delivered
    held,         \* receipts that receivers hold: <<message, try>>
    acks,         \* how often an ack was answered with yes
    crashes

vars == <<state, tries, held, acks, crashes>>

Init ==
    /\ state = [m \in Messages |-> "none"]
    /\ tries = [m \in Messages |-> 0]
    /\ held = {}
    /\ acks = [m \in Messages |-> 0]
    /\ crashes = 0

Send(m) ==
    /\ state[m] = "none"
    /\ state' = [state EXCEPT ![m] = "ready"]
    /\ UNCHANGED <<tries, held, acks, crashes>>

Receive(m) ==
    /\ state[m] = "ready"
    /\ tries[m] < Deliveries
    /\ state' = [state EXCEPT ![m] = "leased"]
    /\ tries' = [tries EXCEPT ![m] = @ + 1]
    /\ held' = held \union {<<m, tries[m] + 1>>}
    /\ UNCHANGED <<acks, crashes>>

Valid(m, try) == state[m] = "leased" /\ (tries[m] = try \/ ~ChecksReceipt)

(* The receiver is done. A receipt that is not valid is refused and changes nothing. *)
Ack(m, try) ==
    /\ <<m, try>> \in held
    /\ held' = held \ {<<m, try>>}
    /\ IF Valid(m, try) \/ (~ChecksReceipt /\ state[m] \in {"ready", "acked"})
         THEN /\ state' = [state EXCEPT ![m] = "acked"]
              /\ acks' = [acks EXCEPT ![m] = @ + 1]
         ELSE UNCHANGED <<state, acks>>
    /\ UNCHANGED <<tries, crashes>>

(* A lease ends without an ack: given back, run out, or forgotten in a crash. *)
Back(m) == IF tries[m] >= Deliveries THEN "dead" ELSE "ready"

Nack(m, try) ==
    /\ <<m, try>> \in held
    /\ Valid(m, try)
    /\ held' = held \ {<<m, try>>}
    /\ state' = [state EXCEPT ![m] = Back(m)]
    /\ UNCHANGED <<tries, acks, crashes>>

Expire(m) ==
    /\ state[m] = "leased"
    /\ state' = [state EXCEPT ![m] = Back(m)]
    /\ UNCHANGED <<tries, held, acks, crashes>>

Crash ==
    /\ crashes < Crashes
    /\ crashes' = crashes + 1
    /\ state' = [m \in Messages |-> IF state[m] = "leased" THEN Back(m) ELSE state[m]]
    /\ UNCHANGED <<tries, held, acks>>

Settled == \A m \in Messages : state[m] \in {"acked", "dead"}

Next ==
    \/ \E m \in Messages : Send(m) \/ Receive(m) \/ Expire(m)
    \/ \E receipt \in held : Ack(receipt[1], receipt[2]) \/ Nack(receipt[1], receipt[2])
    \/ Crash
    \/ Settled /\ UNCHANGED vars

Spec ==
    /\ Init /\ [][Next]_vars
    /\ \A m \in Messages : WF_vars(Send(m)) /\ WF_vars(Receive(m)) /\ WF_vars(Expire(m))

-------------------------------------------------------------------------------
AckedOnce == \A m \in Messages : acks[m] <= 1

AckedForGood == [][\A m \in Messages : state[m] = "acked" => state'[m] = "acked"]_vars

DeadForGood == [][\A m \in Messages : state[m] = "dead" => state'[m] = "dead"]_vars

OldReceiptDoesNothing ==
    [][\A m \in Messages : acks'[m] > acks[m] => state[m] = "leased"]_vars

NeverLost == \A m \in Messages : (acks[m] = 0 /\ tries[m] > 0) => state[m] # "none" /\ state[m] # "acked"

AllSettled == <>Settled
===============================================================================
