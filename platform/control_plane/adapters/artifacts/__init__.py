"""The artifact store: contents by their digest, in a folder or a bucket, and their garbage collection."""
