"""Files of requests, and batches: requests that run when nobody else's wait."""
