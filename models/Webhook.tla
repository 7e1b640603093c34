------------------------------ MODULE Webhook ------------------------------
(* How a webhook becomes exactly one applied event.                         *)
(*                                                                          *)
(* A provider delivers an event again and again until it is answered. The   *)
(* bridge verifies a delivery, sends the event with its claim to the        *)
(* mailbox, and answers. It may crash at any step, and an answer may be     *)
(* lost: what the bridge holds is gone, what the mailbox has stays. A call  *)
(* that the bridge gave up on may still be under way inside the mailbox:    *)
(* it is late, and may be stored after the provider was told that it failed.*)
(* A consumer applies each message once.                                    *)
(*                                                                          *)
(* With Atomic the claim and the message are one durable step, as the       *)
(* mailbox's idem_key makes them. Without it they are two, and a crash      *)
(* between them leaves a claim that no message stands behind.               *)
EXTENDS Naturals

CONSTANTS Events, FaultsMax, Atomic

VARIABLES
    step,      \* where the delivery of an event is inside the bridge
    claimed,   \* events whose claim is durable
    stored,    \* messages of each event in the mailbox, ever
    late,      \* events whose call was given up on and may still be stored
    applied,   \* how often a consumer applied each event
    answered,  \* events the provider was answered 202 for
    faults     \* crashes, lost answers and failed calls so far

vars == <<step, claimed, stored, late, applied, answered, faults>>
Steps == {"none", "arrived", "verified", "claimed", "sent"}

TypeOK ==
    /\ step \in [Events -> Steps]
    /\ claimed \subseteq Events
    /\ stored \in [Events -> Nat]
    /\ late \subseteq Events
    /\ applied \in [Events -> Nat]
    /\ answered \subseteq Events
    /\ faults \in 0..FaultsMax

Init ==
    /\ step = [e \in Events |-> "none"]
    /\ claimed = {}
    /\ stored = [e \in Events |-> 0]
    /\ late = {}
    /\ applied = [e \in Events |-> 0]
    /\ answered = {}
    /\ faults = 0

Move(e, from, to) == step[e] = from /\ step' = [step EXCEPT ![e] = to]

(* The provider delivers, and goes on until it is answered.                 *)
Deliver(e) ==
    /\ e \notin answered
    /\ Move(e, "none", "arrived")
    /\ UNCHANGED <<claimed, stored, late, applied, answered, faults>>

(* A provider may also deliver an event that it was answered for: a replay. *)
Replay(e) ==
    /\ e \in answered
    /\ faults < FaultsMax
    /\ faults' = faults + 1
    /\ Move(e, "none", "arrived")
    /\ UNCHANGED <<claimed, stored, late, applied, answered>>

Verify(e) ==
    /\ Move(e, "arrived", "verified")
    /\ UNCHANGED <<claimed, stored, late, applied, answered, faults>>

(* Claim and message in one durable step; a repeat finds the claim.         *)
Store1(e) ==
    /\ claimed' = claimed \cup {e}
    /\ stored' = IF e \in claimed THEN stored ELSE [stored EXCEPT ![e] = @ + 1]

Send(e) ==
    /\ Atomic
    /\ Move(e, "verified", "sent")
    /\ Store1(e)
    /\ UNCHANGED <<late, applied, answered, faults>>

(* The mailbox stores what nobody waits for any more.                       *)
StoreLate(e) ==
    /\ e \in late
    /\ late' = late \ {e}
    /\ Store1(e)
    /\ UNCHANGED <<step, applied, answered, faults>>

Claim(e) ==
    /\ ~Atomic
    /\ Move(e, "verified", IF e \in claimed THEN "sent" ELSE "claimed")
    /\ claimed' = claimed \cup {e}
    /\ UNCHANGED <<stored, late, applied, answered, faults>>

Store(e) ==
    /\ ~Atomic
    /\ Move(e, "claimed", "sent")
    /\ stored' = [stored EXCEPT ![e] = @ + 1]
    /\ UNCHANGED <<claimed, late, applied, answered, faults>>

Answer(e) ==
    /\ Move(e, "sent", "none")
    /\ answered' = answered \cup {e}
    /\ UNCHANGED <<claimed, stored, late, applied, faults>>

(* Of these the mailbox may have the call already.                          *)
UnderWay(es) == {e \in es : Atomic /\ step[e] = "verified"}

(* The answer is lost, or the call failed and the provider got a 503.       *)
Fail(e) ==
    /\ faults < FaultsMax
    /\ faults' = faults + 1
    /\ step[e] # "none"
    /\ step' = [step EXCEPT ![e] = "none"]
    /\ late' \in {late, late \cup UnderWay({e})}
    /\ UNCHANGED <<claimed, stored, applied, answered>>

Crash ==
    /\ faults < FaultsMax
    /\ faults' = faults + 1
    /\ step' = [e \in Events |-> "none"]
    /\ late' \in SUBSET (late \cup UnderWay(Events))
    /\ UNCHANGED <<claimed, stored, applied, answered>>

(* The consumer settles each message once it has applied it.                *)
Apply(e) ==
    /\ applied[e] < stored[e]
    /\ applied' = [applied EXCEPT ![e] = @ + 1]
    /\ UNCHANGED <<step, claimed, stored, late, answered, faults>>

(* When every event is answered and applied there is nothing left to do.    *)
Rest ==
    /\ late = {}
    /\ \A e \in Events : e \in answered /\ step[e] = "none" /\ applied[e] = stored[e]
    /\ UNCHANGED vars

Next ==
    \/ Crash
    \/ Rest
    \/ \E e \in Events :
        \/ Deliver(e) \/ Replay(e) \/ Verify(e) \/ Send(e) \/ StoreLate(e)
        \/ Claim(e) \/ Store(e)
        \/ Answer(e) \/ Fail(e) \/ Apply(e)

Fairness ==
    \A e \in Events :
        /\ WF_vars(Deliver(e)) /\ WF_vars(Verify(e)) /\ WF_vars(Send(e)) /\ WF_vars(StoreLate(e))
        /\ WF_vars(Claim(e)) /\ WF_vars(Store(e)) /\ WF_vars(Answer(e)) /\ WF_vars(Apply(e))

Spec == Init /\ [][Next]_vars /\ Fairness

(* Safety: an event is applied at most once, and a 202 means it is stored.  *)
AppliedOnce == \A e \in Events : applied[e] <= 1 /\ stored[e] <= 1
AnsweredIsStored == \A e \in answered : stored[e] = 1

(* Liveness: every event is answered and applied in the end.                *)
Drains == \A e \in Events : <>(e \in answered /\ applied[e] = 1)
=============================================================================
