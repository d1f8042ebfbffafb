"""HTTP parts that every endpoint shares: request ids, error bodies, security headers, the console's files."""
