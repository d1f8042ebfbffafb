"""Django's PostgreSQL backend for a server that may go away: bounded waits, a circuit breaker, no stale connections."""
