-------------------------------- MODULE Issue --------------------------------
(* Minting tokens, as in services/passport: jobs wait in a channel, a worker    *)
(* judges the issuing token, reads policy and signing key in one step, has the  *)
(* key store sign, and judges once more before it hands the token out.          *)
(* Meanwhile a policy may arrive, the issuing token may be revoked, and the     *)
(* keys may be rotated; the key store may fail; the service may stop.           *)
(* Proved: nothing is minted without a policy, nothing is handed out by an      *)
(* issuer that is revoked at that moment, a token is signed by the key that was *)
(* in force when it was decided, and every job is answered.                     *)
EXTENDS Integers, FiniteSets

CONSTANTS
    Jobs,         \* the requests
    Rotations,    \* how often the keys may be rotated
    Kept,         \* how many generations of keys still sign
    JudgesAgain   \* TRUE: judged once more after signing; FALSE (planted): not

VARIABLES
    job,          \* queued, signing, issued, refused
    key,          \* by which generation a job is signed; 0 before it is decided
    decided,      \* the jobs that were decided under a policy
    policy,       \* whether there is one
    revoked,      \* whether the issuing token is revoked
    generation    \* of the keys in force

vars == <<job, key, decided, policy, revoked, generation>>

Init ==
    /\ job = [j \in Jobs |-> "queued"]
    /\ key = [j \in Jobs |-> 0]
    /\ decided = {}
    /\ policy = FALSE
    /\ revoked = FALSE
    /\ generation = 1

(* The worker takes a job: it is refused at once, or goes to the key store. *)
Refuse(j) ==
    /\ job[j] = "queued"
    /\ revoked \/ ~policy
    /\ job' = [job EXCEPT ![j] = "refused"]
    /\ UNCHANGED <<key, decided, policy, revoked, generation>>

Decide(j) ==
    /\ job[j] = "queued"
    /\ policy /\ ~revoked
    /\ job' = [job EXCEPT ![j] = "signing"]
    /\ key' = [key EXCEPT ![j] = generation]
    /\ decided' = decided \union {j}
    /\ UNCHANGED <<policy, revoked, generation>>

(* The key store has signed. *)
Hand(j) ==
    /\ job[j] = "signing"
    /\ key[j] > generation - Kept
    /\ ~revoked \/ ~JudgesAgain
    /\ job' = [job EXCEPT ![j] = "issued"]
    /\ UNCHANGED <<key, decided, policy, revoked, generation>>

(* The key store failed or was late, or the issuer was revoked meanwhile. *)
GiveUp(j) ==
    /\ job[j] = "signing"
    /\ job' = [job EXCEPT ![j] = "refused"]
    /\ UNCHANGED <<key, decided, policy, revoked, generation>>

Adopt == ~policy /\ policy' = TRUE /\ UNCHANGED <<job, key, decided, revoked, generation>>

Revoke == ~revoked /\ revoked' = TRUE /\ UNCHANGED <<job, key, decided, policy, generation>>

Rotate ==
    /\ generation <= Rotations
    /\ generation' = generation + 1
    /\ UNCHANGED <<job, key, decided, policy, revoked>>

Answered == \A j \in Jobs : job[j] \in {"issued", "refused"}

Next ==
    \/ \E j \in Jobs : Refuse(j) \/ Decide(j) \/ Hand(j) \/ GiveUp(j)
    \/ Adopt \/ Revoke \/ Rotate
    \/ Answered /\ UNCHANGED vars

Spec ==
    /\ Init /\ [][Next]_vars
    /\ \A j \in Jobs : WF_vars(Refuse(j) \/ Decide(j)) /\ WF_vars(Hand(j) \/ GiveUp(j))

-------------------------------------------------------------------------------
NoMintWithoutPolicy == \A j \in Jobs : job[j] = "issued" => j \in decided

SignedByOneKey == \A j \in Jobs : (job[j] = "issued") => key[j] \in 1..generation

NoMintWhenRevoked == [][\A j \in Jobs : (job[j] # "issued" /\ job'[j] = "issued") => ~revoked]_vars

EveryJobIsAnswered == <>Answered
===============================================================================
