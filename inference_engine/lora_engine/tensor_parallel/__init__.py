"""One model over several devices of a host: a process for each, the first of which plans, and tells the others.

What the first does to its device (copy an adapter, run a step, capture a graph, merge) it tells the others in the same
order, one message each; they do the same to theirs and decide nothing. So their pools have the same pages, and no state
but the devices' has to agree.
"""
