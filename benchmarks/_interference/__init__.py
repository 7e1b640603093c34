"""The neighbours of a quiet topic: see `benchmarks.interference`."""
