---------------------------- MODULE FairRoundsMC ----------------------------
(* A small instance: two flows of different weight, costs above a quantum.   *)
EXTENDS FairRounds
MCFlows == {"light", "heavy"}
MCQuanta == [f \in MCFlows |-> IF f = "light" THEN 1 ELSE 2]
=============================================================================
