-------------------------------- MODULE Drain --------------------------------
(* The end of a service in good order, as in kernel/drain.py: a listener offers *)
(* jobs to a bounded channel, workers take and finish them, and at any moment   *)
(* the service is asked to stop. It then stops intake, closes the channel, and  *)
(* is stopped when the channel is empty and no worker holds a job.              *)
(* Proved: the channel is bounded, an accepted job is never lost, all accepted  *)
(* jobs are finished when the service has stopped, and it does stop.            *)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Jobs,      \* how many jobs the listener offers
    Workers,   \* how many workers there are
    Cap,       \* how many jobs the channel holds
    DrainAll   \* TRUE: workers empty the channel; FALSE (planted): they leave at once

VARIABLES
    offered,   \* how many jobs were offered so far
    accepted,  \* those the channel took
    queue,     \* those that wait in it
    taken,     \* those in the hands of workers
    finished,  \* those that are done
    phase      \* running, draining, closed, stopped

vars == <<offered, accepted, queue, taken, finished, phase>>

Init ==
    /\ offered = 0
    /\ accepted = {}
    /\ queue = <<>>
    /\ taken = {}
    /\ finished = {}
    /\ phase = "running"

(* A job is offered: it is accepted if there is room, and refused otherwise. *)
Offer ==
    /\ phase = "running"
    /\ offered < Jobs
    /\ offered' = offered + 1
    /\ IF Len(queue) < Cap
         THEN /\ queue' = Append(queue, offered)
              /\ accepted' = accepted \union {offered}
         ELSE UNCHANGED <<queue, accepted>>
    /\ UNCHANGED <<taken, finished, phase>>

Take ==
    /\ queue # <<>>
    /\ Cardinality(taken) < Workers
    /\ phase # "stopped"
    /\ DrainAll \/ phase = "running"
    /\ taken' = taken \union {Head(queue)}
    /\ queue' = Tail(queue)
    /\ UNCHANGED <<offered, accepted, finished, phase>>

Finish(job) ==
    /\ job \in taken
    /\ taken' = taken \ {job}
    /\ finished' = finished \union {job}
    /\ UNCHANGED <<offered, accepted, queue, phase>>

Stop ==
    /\ phase = "running"
    /\ phase' = "draining"
    /\ UNCHANGED <<offered, accepted, queue, taken, finished>>

(* Intake is quiet: nobody sends any more. *)
Close ==
    /\ phase = "draining"
    /\ phase' = "closed"
    /\ UNCHANGED <<offered, accepted, queue, taken, finished>>

Stopped ==
    /\ phase = "closed"
    /\ taken = {}
    /\ queue = <<>> \/ ~DrainAll
    /\ phase' = "stopped"
    /\ UNCHANGED <<offered, accepted, queue, taken, finished>>

Over == phase = "stopped" /\ UNCHANGED vars

Next == Offer \/ Take \/ (\E job \in taken : Finish(job)) \/ Stop \/ Close \/ Stopped \/ Over

Spec ==
    /\ Init /\ [][Next]_vars
    /\ WF_vars(Take) /\ WF_vars(Stop) /\ WF_vars(Close) /\ WF_vars(Stopped)
    /\ \A job \in 0..(Jobs - 1) : WF_vars(Finish(job))

-------------------------------------------------------------------------------
InQueue == {queue[place] : place \in 1..Len(queue)}

Bounded == Len(queue) <= Cap /\ Cardinality(taken) <= Workers

NothingLost == accepted = InQueue \union taken \union finished

NothingTwice == /\ InQueue \intersect (taken \union finished) = {}
                /\ taken \intersect finished = {}

AllDone == phase = "stopped" => accepted = finished

Ends == <>(phase = "stopped")
===============================================================================
