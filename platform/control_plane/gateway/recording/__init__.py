"""What is written behind the requests: usage, refusals, transcripts."""
