"""People: users who log in by e-mail, and their sessions."""
