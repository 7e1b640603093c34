"""One module a command. Each has `add(parser)` and `run(args) -> exit code`, and is imported only when it is used.

ack, nack, extend  settle messages, or keep them longer
audit              walk the hash-chained audit
bench              run the benchmarks of a checkout
completion         print a completion script for bash, zsh or fish
config             show, check or reload the configuration
context            names for nodes
dht                announce and find providers; the simulator and the swarm
dlq                dead letters
doctor             says what is wrong with a node
get, put           objects by their address
inventory          the live inventory, and the generated tables
mailbox            check and repair the mailbox's files
route              the gateway's routes to services of your own
peek, purge        look at messages, or remove all of a topic
open               a new link to the operator's page
send, recv         store messages; lease and show them
serve              run one service alone
sqs                access keys and the environment for AWS SQS clients
status             one table of a running node
stop               drain a node and wait
storage            check and repair the store's files
token              issue, narrow, look into, verify and revoke capabilities
topic              what holds for one topic: settings, delete
top                the busiest topics, drawn every second
topics             what waits, what is leased, what is dead
tour               shows the promises on a running node
up                 run the whole node
version            print the version
whoami             whose token is used
weave              try every schedule of a small asyncio program
webhook            sign a webhook as its provider would
"""
