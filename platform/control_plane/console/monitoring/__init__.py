"""The state of the installation for Prometheus: jobs, placements, the ledger, and the busiest tenants."""
