"""Base models: configuration, weights, and the forward pass over a ragged batch."""
