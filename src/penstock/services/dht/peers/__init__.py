"""Connections to other nodes: proven once, used both ways.

| module | what it holds |
|---|---|
| `link` | one connection: frames in and out, requests that wait for their answers |
| `proving` | the HELLO of both ends, within its second and its share of the verify pool |
| `pool` | one link a proven peer: asking, dialling, keeping alive, forgetting |
| `kept_links` | the proven links, and which of them is given up |
| `links_ahead` | opens links before a lookup needs them |
| `dialing` | which addresses that peers name are dialled at all |
| `server` | answers what peers ask, from snapshots, under the limiter |
| `listener` | accepts peers: caps and rates before any signature |
"""
