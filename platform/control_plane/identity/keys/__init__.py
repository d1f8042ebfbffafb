"""API keys: made once, stored as a keyed hash, checked on every call."""
