"""What a worker says to a person: one plain line for whatever is off.

lines          one plain line, on the log or on standard error
message_ends   a message ended otherwise than by an ack
loop_stalls    the event loop stood still while leases were held
"""
