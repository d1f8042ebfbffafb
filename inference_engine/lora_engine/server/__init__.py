"""The engine's process and its gRPC service: threads, sessions, staging, the usage journal, metrics."""
