"""Bytes to values and back, free of I/O: no socket, clock or random source is imported here. Pure.

http1/      HTTP/1.1: requests and answers out of bytes
oap/        OAP/1: frames, the first exchange, stream rules, errors
cbor        canonical CBOR for a closed subset: what signed things are made of
inflate     bounded decompression
target      the request target: split first, then decoded once
ranges      which part of an object a request asks for
conditions  If-None-Match and If-Range
strict_base64  base64 with one spelling only
plain_words sizes and broken rules in words for people
ids         UUIDv7 and content addresses as text
audit_chain records as a chain of lines, each naming the hash of the one before
"""
