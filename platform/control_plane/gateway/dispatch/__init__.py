"""The path of a request from admission to its last token, whatever API it came through."""
