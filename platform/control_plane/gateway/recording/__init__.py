"""Background writers of usage, refusals and transcripts."""
