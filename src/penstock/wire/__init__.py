"""Bytes to values and back, free of I/O: no socket, clock or random source is imported here.

http1, http1_head, http1_chunked   requests out of a connection's bytes
http1_answer                       answers out of a connection's bytes
target                             the request target: split first, decoded once
inflate                            bounded decompression
oap, oap_hello                     frames between processes
ids                                UUIDv7 and content addresses as text
"""
