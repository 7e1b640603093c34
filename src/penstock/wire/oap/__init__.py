"""OAP/1, the framed protocol between processes, as pure state machines. Pure.

frame    frames: the header, its flags, and the decoder
hello    the first exchange: user agent and limits
stream   the stream rules of one connection: frames in, decisions out
problem  errors over the wire: they arrive as the class they were
"""
