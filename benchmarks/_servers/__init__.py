"""Servers the benchmarks start, each in a process of its own."""
