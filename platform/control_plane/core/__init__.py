"""The base of the control plane: configuration, errors, HTTP, jobs, events and the database."""
