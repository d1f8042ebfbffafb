"""Adapters from where they lie: the Hugging Face Hub, and archives at https addresses such as a bucket's."""
