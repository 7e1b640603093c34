"""The other ends of `benchmarks.dht`: swarms of the peers it is compared with."""
