"""Tensor parallelism over the devices of a host: one process for each device, with rank 0 as the leader.

The leader sends each operation on its device (copy an adapter, run a step, capture a graph, merge) to the followers as
one message, in order; they repeat it on their devices and decide nothing. So all pools have the same pages, and only
the devices' state has to agree.
"""
