"""Importing this excludes from garbage collection what is loaded so far, and the start of forks.

Otherwise the first collection in each fork would copy the pages of all objects, which took longer than the fork.
"""

import gc

import lorikeet_testing.forked  # noqa: F401

gc.collect()
gc.freeze()
