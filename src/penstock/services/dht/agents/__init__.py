"""The agents of svc-dht, one a file.

| module | what it does |
|---|---|
| `routes` | the way to the bucket writers: which command goes to which |
| `bucket_writer` | the one writer of a bucket |
| `record_keeper` | the one writer of the records kept for others |
| `record_verifier` | verifies signatures off the loop and remembers what held |
| `walk` | drives one lookup over the peers |
| `lookup_worker` | works off finds, provides and background walks |
| `publishing` | stores a record at the nodes nearest to its key |
| `republisher` | the one writer of the node's own records; publishes them again in time |
| `own_records` | the node's own records and identity on disk |
| `pinger` | asks doubted contacts whether they are there |
| `bootstrapper` | joins the network and judges readiness |
| `refresher` | walks into buckets nobody has looked into for an hour |
"""
