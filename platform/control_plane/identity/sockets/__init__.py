"""Websockets of the platform: who holds one, and for how long that stays true."""
