"""The SQS face at work: what serves the protocol on the bridge's listener.

| module | what it holds |
|---|---|
| `access_keys` | access keys and what each may do; pure |
| `key_file` | the sealed file in which they lie |
| `key_ring` | the keys in force: those of the file, and those of the settings |
| `registry` | which queues there are; the one writer of their records |
| `backing` | calls to the mailbox on behalf of a key, and its refusals in the protocol's words |
| `asked` | one request that was understood: who asks, for what, on which queue |
| `queue_desk` | the operations on queues |
| `message_desk` | the operations on messages, as errands to the mailbox |
| `errands` | runs those: without a task where nothing has to be waited for; the receivers that wait |
| `move_desk`, `mover` | moves of messages: the operations, and the agent that carries them out |
| `endpoint` | HTTP to operations and back |
| `key_routes` | the operator's routes for keys |
| `wiring` | puts the face together |
"""
