"""The HTTP/1.1 client: how penstock calls somebody else over HTTP.

client      the client: one call or a stream, each under a deadline
call        one call as a value, and the bytes of its request head
origin      where a call goes: scheme, host, port, target
downstream  one origin: its pool, its breaker, its retry budget, and one try of a call
pool        the connections to one origin: bounded, with a bounded queue for them
connection  one connection: writes a request and reads its answer
sending     the writing side of a connection
retry       whether a call is tried again, and when
answer      what a caller gets back: a whole answer or a stream
"""
