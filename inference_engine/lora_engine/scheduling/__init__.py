"""Which requests may queue, which run next, how their adapters are applied: policies, put together in ``core``."""
