"""Hosts that join by a one-time token, and the certificates of both sides."""
