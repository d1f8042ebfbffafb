"""Helpers shared by the tests: a scripted engine host, a running web process. Never part of the product."""
