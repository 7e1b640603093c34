"""What `benchmarks.interop` starts.

load     sends signed webhooks and counts answers
servers  a node with an endpoint, and Debian's webhook with the same one
"""
