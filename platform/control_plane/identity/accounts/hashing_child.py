"""The process that hashes passwords: `python -m control_plane.identity.accounts.hashing_child`.

It has no Django, no database and no secrets except the passwords it receives. A hash writes 46 MiB of fresh memory; in
the web process its page faults would lock the memory map that all threads of that process share. It reads requests one
after another from its standard input, a line of JSON each, and answers each with a line of JSON; it ends with the
process that started it.

Request: `{"make": hex, "salt": hex, "cost": {...}}` or `{"check": hex, "against": "$argon2id$…"}`, where hex is the
password. Answer: `{"hash": "$argon2id$…"}`, `{"right": bool}` or `{"problem": text}`.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any

from argon2 import PasswordHasher, Type
from argon2.exceptions import Argon2Error, InvalidHashError, VerificationError
from argon2.low_level import hash_secret

from control_plane.core.processor import wait_for_others

NICE = 10


def main() -> None:
    os.nice(NICE)
    wait_for_others()
    with socket.socket(fileno=sys.stdin.fileno()) as connection, connection.makefile("rwb") as lines:
        for line in lines:
            lines.write(json.dumps(answer(json.loads(line))).encode() + b"\n")
            lines.flush()


def answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        if "make" in request:
            password, salt = bytes.fromhex(request["make"]), bytes.fromhex(request["salt"])
            return {"hash": hash_secret(password, salt, type=Type.ID, **request["cost"]).decode()}
        return {"right": PasswordHasher().verify(request["against"], bytes.fromhex(request["check"]))}
    except VerificationError:
        return {"right": False}
    except (Argon2Error, InvalidHashError) as error:
        return {"problem": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main()
