"""The gRPC connection to engine hosts."""
