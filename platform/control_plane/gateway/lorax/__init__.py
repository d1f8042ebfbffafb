"""LoRAX's API, for clients that were written for it: `/generate`, `/generate_stream` and `POST /`."""
