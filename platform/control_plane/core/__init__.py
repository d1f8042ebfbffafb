"""What every part of the control plane builds on: configuration, errors, HTTP, jobs, events and the database."""
