"""HTTP/1.1 as pure state machines: bytes in, values out. Pure.

request        requests out of the bytes of a connection
head           what a request head may look like: limits, request line, fields, framing
chunked        chunked request bodies, walked in step with llhttp
answer         answers out of the bytes of a connection
answer_chunks  chunked bodies of answers
"""
