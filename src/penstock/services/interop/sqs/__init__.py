"""The SQS face: the protocol of AWS SQS, so that its clients work against the mailbox.

| module | what it holds |
|---|---|
| `operations` | the 23 operations as data |
| `json_protocol`, `query_protocol` | requests and answers as AWS JSON 1.0, and as forms and XML |
| `query_json` | answers of the query protocol as JSON |
| `refusals` | the protocol's errors, with their codes and statuses |
| `sigv4` | who signed a request, by header or presigned |
| `day_keys` | the short way to check a signature, for clients that were believed before |
| `names` | names, URLs, ARNs and paths of queues |
| `attributes` | queue attributes: checks, defaults, what they mean for the topic behind |
| `messages` | bodies and message attributes: checks, how they travel, what a receiver asked for |
| `digests` | the MD5 digests that clients compare |
| `handles` | receipt handles, handles of move tasks, page tokens |
| `checks` | from an operation's fields to a checked request |
| `deliveries` | messages between the mailbox and SQS |
| `queues` | a queue as it is remembered in its topic's settings |
| `face/` | what serves the protocol on the bridge's listener |
"""
