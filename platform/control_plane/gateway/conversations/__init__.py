"""Conversations of `/v1/responses` that a tenant asked to have stored."""
