"""What one service may ask of another: values and Protocols, one module a service. Pure.

call             what travels with every call: capability, corr_id, where the request first came in
method           a contract's methods as a numbered table
tables           the tables of all contracts, and the page generated from them
capability       Verifier: does this token cover this request
mailbox          svc-mailbox: send, recv, ack, nack, extend, topics, dead letters
plain_payloads   payloads as text and JSON
handler_error    why a handler gave a message back
mailbox_rules    the rules that sender, service and receiver share: sizes, hashes, the method table
mailbox_prompt   the mailbox for callers in the same process that do not wait
mailbox_bodies   settlements as HTTP bodies
mailbox_batches  batches of which some items cannot be read
passport         svc-passport: issue, verify, revoke, rotate, keys, revocations
passport_bodies  answers of the passport's HTTP routes where they differ from the contract's values
storage          svc-storage: put, get, head by content address
dht              svc-dht: who provides a key
interop          svc-interop: webhooks, their inbox, puts and reads
interop_bodies   the body of a put as JSON
bus              the node's events as OAP/1 EVENT frames
"""
