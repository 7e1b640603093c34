"""What peers say to each other, as bytes; free of I/O.

| module | what it holds |
|---|---|
| `frames` | length-delimited frames out of a stream of bytes |
| `envelope` | the CBOR envelope around every message |
| `messages` | the payloads of requests and answers |
| `hello` | the proof of identity at the start of a connection |
"""
