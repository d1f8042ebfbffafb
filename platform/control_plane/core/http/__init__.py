"""What every HTTP answer shares: request ids, error bodies, security headers, the console's files."""
