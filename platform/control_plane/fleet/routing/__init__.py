"""Routing: choosing the host of a request, and waiting for a place on one."""
