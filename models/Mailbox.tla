------------------------------- MODULE Mailbox -------------------------------
(* At least once delivery, as in services/mailbox: a message is sent, leased by *)
(* a receiver, and acked, given back, kept longer, or its lease runs out; after *)
(* so many deliveries it is a dead letter. A lease is named by its receipt; a   *)
(* receipt of an earlier lease does nothing. The writer may crash: then a lease *)
(* that was not written yet is gone, and its delivery is not counted; what was  *)
(* written is there. The service may stop: what is not settled then stays.      *)
(* Proved: a message is never lost, never delivered again after its ack, acked  *)
(* at most once, and becomes a dead letter at most once; and every message is   *)
(* settled in the end if receivers go on and the service does not stop.         *)
EXTENDS Integers, FiniteSets

CONSTANTS
    Messages,     \* what may be sent
    Deliveries,   \* after so many a message is a dead letter
    Crashes,      \* how often the writer may crash
    ChecksReceipt \* TRUE: an ack needs the receipt of the lease; FALSE (planted): any receipt will do

VARIABLES
    state,        \* none, ready, leased, acked, dead
    tries,        \* how many deliveries are counted
    leases,       \* how many leases there were: the last one's number is its receipt
    time,         \* of the lease: none, given, longer (the receiver asked for it, once), last
    held,         \* receipts that receivers hold: <<message, lease>>
    acks,         \* how often an ack was answered with yes
    crashes,
    stopped

vars == <<state, tries, leases, time, held, acks, crashes, stopped>>

Init ==
    /\ state = [m \in Messages |-> "none"]
    /\ tries = [m \in Messages |-> 0]
    /\ leases = [m \in Messages |-> 0]
    /\ time = [m \in Messages |-> "none"]
    /\ held = {}
    /\ acks = [m \in Messages |-> 0]
    /\ crashes = 0
    /\ stopped = FALSE

Send(m) ==
    /\ ~stopped
    /\ state[m] = "none"
    /\ state' = [state EXCEPT ![m] = "ready"]
    /\ UNCHANGED <<tries, leases, time, held, acks, crashes, stopped>>

Receive(m) ==
    /\ ~stopped
    /\ state[m] = "ready"
    /\ tries[m] < Deliveries
    /\ state' = [state EXCEPT ![m] = "leased"]
    /\ tries' = [tries EXCEPT ![m] = @ + 1]
    /\ leases' = [leases EXCEPT ![m] = @ + 1]
    /\ time' = [time EXCEPT ![m] = "given"]
    /\ held' = held \union {<<m, leases[m] + 1>>}
    /\ UNCHANGED <<acks, crashes, stopped>>

Valid(m, lease) == state[m] = "leased" /\ (leases[m] = lease \/ ~ChecksReceipt)

(* The receiver is done. A receipt that is not valid is refused and changes nothing. *)
Ack(m, lease) ==
    /\ ~stopped
    /\ <<m, lease>> \in held
    /\ held' = held \ {<<m, lease>>}
    /\ IF Valid(m, lease) \/ (~ChecksReceipt /\ state[m] \in {"ready", "acked"})
         THEN /\ state' = [state EXCEPT ![m] = "acked"]
              /\ acks' = [acks EXCEPT ![m] = @ + 1]
         ELSE UNCHANGED <<state, acks>>
    /\ UNCHANGED <<tries, leases, time, crashes, stopped>>

(* The receiver needs longer. *)
Extend(m, lease) ==
    /\ ~stopped
    /\ <<m, lease>> \in held
    /\ Valid(m, lease)
    /\ time[m] = "given"
    /\ time' = [time EXCEPT ![m] = "longer"]
    /\ UNCHANGED <<state, tries, leases, held, acks, crashes, stopped>>

(* A lease ends without an ack: given back, or run out. *)
Back(m) == IF tries[m] >= Deliveries THEN "dead" ELSE "ready"

Nack(m, lease) ==
    /\ ~stopped
    /\ <<m, lease>> \in held
    /\ Valid(m, lease)
    /\ held' = held \ {<<m, lease>>}
    /\ state' = [state EXCEPT ![m] = Back(m)]
    /\ UNCHANGED <<tries, leases, time, acks, crashes, stopped>>

Expire(m) ==
    /\ ~stopped
    /\ state[m] = "leased"
    /\ IF time[m] = "longer"
         THEN time' = [time EXCEPT ![m] = "last"] /\ UNCHANGED state
         ELSE state' = [state EXCEPT ![m] = Back(m)] /\ UNCHANGED time
    /\ UNCHANGED <<tries, leases, held, acks, crashes, stopped>>

(* The state is read from the disk again; the leases of some messages had not been written. *)
Crash ==
    /\ ~stopped
    /\ crashes < Crashes
    /\ crashes' = crashes + 1
    /\ \E unwritten \in SUBSET {m \in Messages : state[m] = "leased"} :
         /\ state' = [m \in Messages |-> IF m \in unwritten THEN "ready" ELSE state[m]]
         /\ tries' = [m \in Messages |-> IF m \in unwritten THEN tries[m] - 1 ELSE tries[m]]
    /\ UNCHANGED <<leases, time, held, acks, stopped>>

Stop == ~stopped /\ stopped' = TRUE /\ UNCHANGED <<state, tries, leases, time, held, acks, crashes>>

Settled == \A m \in Messages : state[m] \in {"acked", "dead"}

Next ==
    \/ \E m \in Messages : Send(m) \/ Receive(m) \/ Expire(m)
    \/ \E receipt \in held :
         Ack(receipt[1], receipt[2]) \/ Nack(receipt[1], receipt[2]) \/ Extend(receipt[1], receipt[2])
    \/ Crash
    \/ Stop
    \/ (Settled \/ stopped) /\ UNCHANGED vars

Spec ==
    /\ Init /\ [][Next]_vars
    /\ \A m \in Messages : WF_vars(Send(m)) /\ WF_vars(Receive(m)) /\ WF_vars(Expire(m))

-------------------------------------------------------------------------------
AckedOnce == \A m \in Messages : acks[m] <= 1

AckedForGood == [][\A m \in Messages : state[m] = "acked" => state'[m] = "acked"]_vars

DeadForGood == [][\A m \in Messages : state[m] = "dead" => state'[m] = "dead"]_vars

OldReceiptDoesNothing ==
    [][\A m \in Messages : acks'[m] > acks[m] => state[m] = "leased"]_vars

NeverLost == \A m \in Messages : (acks[m] = 0 /\ leases[m] > 0) => state[m] # "none" /\ state[m] # "acked"

AllSettled == <>(Settled \/ stopped)
===============================================================================
