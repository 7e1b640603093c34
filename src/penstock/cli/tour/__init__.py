"""What `penstock tour` shows: one promise a step.

context  what a step may use and print
steps    the steps, in order
node     a node of its own, in another process
gateway  the overload: three classes ask for more than the gateway can serve
"""
