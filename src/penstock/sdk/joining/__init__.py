"""How calls of one client that are under way together are made by one request.

joined_mailbox  the mailbox contract, with calls that are under way together joined into batches
call_joiner     makes calls of one kind together
join_queue      which calls go out together, and when, as a pure decision
place_line      places for calls, and a line of those who wait for one
timer_line      timers of one length that share a timer of the loop
"""
