"""svc-interop: the outside world, verified at the edge.

| module | what it holds |
|---|---|
| `config` | the `[interop]` table and the options read from it |
| `endpoints` | webhook endpoints as the settings describe them |
| `providers/` | one check for each kind of webhook sender; pure |
| `origins` | where a webhook may come from; pure |
| `events` | a verified webhook as the event that consumers read; pure |
| `attacks` | when bad signatures are too many, and what the audit then gets; pure |
| `brownout` | when the bridge sheds work; pure |
| `audit` | the record of decisions as lines of a hash chain; pure |
| `inbox` | the last deliveries, for people; pure |
| `signing` | a webhook as its provider would send it, to try an endpoint out; pure |
| `sqs/` | the protocol of AWS SQS; pure |
| `calls` | the discipline of calls to the services behind |
| `authority` | with what right the bridge acts: its issuer token, and passports for one purpose each |
| `endpoint_topics` | how an event and its claim become one message: settings of the topics, and sends |
| `records` | what is told about each decision: audit, events, inbox, counters |
| `intake` | what is refused before any work, and the way into the `work` channel |
| `judging` | is this webhook its provider's: asked before it becomes work |
| `work` | what travels from the intake to a worker |
| `webhooks` | a worker's duty for webhooks |
| `worker`, `sentinel`, `audit_writer`, and `endpoint_topics` once a minute | the agents: one job each |
| `replays` | an event once more, because a person asks |
| `callers` | may this caller do that |
| `api` | the contract, as the gateway and the operator's page call it |
| `reads` | objects read through the bridge |
| `routes`, `inbox_routes`, `service` | HTTP, and the only wiring |
"""
