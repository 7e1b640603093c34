"""The decisions of svc-dht, free of I/O and clocks: each takes values and `now` and returns what should happen.

| module | what it holds |
|---|---|
| `ids` | node ids and keys as 256-bit numbers, their distance, and the bucket a distance belongs to |
| `contact` | where a node is reached, with its wire form made once |
| `diversity` | address groups, and how many of one group a bucket or a lookup may hold |
| `bucket`, `table` | one k-bucket with its replacement cache; what readers see of all 64 |
| `peer_book` | round-trip times, failures and breakers of the peers this node has asked |
| `lookup`, `path` | a lookup as a pipeline of probes; the candidates of one of its paths |
| `link_spread` | how the connections a node may keep are spread over the key space, and which one is given up |
| `record`, `record_book` | signed provider records; those kept for others, with their quotas |
| `size` | how many nodes there are, from how dense the nearest ones lie |
| `republish` | when which region of the key space is published again |
| `readiness` | whether this node knows enough of the network to be trusted with writes |
"""
