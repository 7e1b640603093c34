"""What one service may ask of another: values and Protocols, one module a service. Pure.

call        who asks: capability, corr_id, where the request first came in
method      a contract's methods as a numbered table; `tables` lists all of them
capability  Verifier: is this token good for this request
mailbox     send, recv, ack, nack, extend, topics, dead letters
passport    issue, verify, revoke, rotate, keys, revocations
storage     put, get, head by content address
"""
