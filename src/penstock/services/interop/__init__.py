"""svc-interop: the outside world, verified at the edge.

| module | what it holds |
|---|---|
| `providers` | one check for each kind of webhook sender; pure |
| `origins` | where a webhook may come from; pure |
| `events` | a verified webhook as the event that consumers read; pure |
| `attacks` | when bad signatures are too many, and what the audit then gets; pure |
| `brownout` | when the bridge sheds work; pure |
| `audit` | the record of decisions as lines of a hash chain; pure |
| `sqs` | the protocol of AWS SQS; pure |
| `signing` | a webhook as its provider would send it, to try an endpoint out; pure |
"""
