"""The agents of the mailbox beside its workers and its writer.

| module | what it holds |
|---|---|
| `visibility_scanner` | the agent that wakes at the nearest deadline |
| `reprocessor` | the agent that sends dead letters back |
| `dead_letter_mover` | the agent that takes dead letters to the topic that `dead_letter_to` names |
| `forwarding` | which topics the mover has to look at; pure |
| `checkpointer` | the agent that has a log copied which has grown |
| `retention` | the agent that removes what is too old or too much |
| `audit` | the file in which it notes what it removed |
| `rebalancer` | the agent that cuts the slots into another number of shards |
| `cap_cache_refresher` | the agent that trims the capability cache |
"""
