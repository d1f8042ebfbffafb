"""Policies decide which requests may queue, which run next and how adapters are applied; ``core`` combines them."""
