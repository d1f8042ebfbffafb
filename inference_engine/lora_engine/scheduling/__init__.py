"""Who runs next, who may enter, and how the batch runs: small policies, composed by the scheduler."""
