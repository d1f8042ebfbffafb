"""The versioned contract between the control plane and an engine host: protobuf over gRPC.

``engine.proto`` is the source; the generated modules are committed beside it and
``make check`` fails when they drift. Regenerate with ``make wire``.
"""
