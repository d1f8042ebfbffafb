"""An owner's session in a real web process, as the console has it."""

from __future__ import annotations

import uuid
from typing import Any

import httpx

from lorikeet_testing.web import TenantAccess, WebProcess


class Console:
    """An owner's session, who is an operator too."""

    def __init__(self, web: WebProcess, access: TenantAccess) -> None:
        web.run("control_plane", "make_operator", access.email)
        self.http = httpx.Client(base_url=web.url, trust_env=False, timeout=30)
        token = self.http.get("/api/session").json()["csrf_token"]
        body = {"email": access.email, "password": access.password}
        answer = self.http.post("/api/session", json=body, headers={"X-CSRFToken": token})
        self.http.headers["X-CSRFToken"] = answer.json()["csrf_token"]

    def new_key(self, **limits: int) -> str:
        made = self.http.post("/api/tenants/acme/keys", json={"name": uuid.uuid4().hex[:8]}).json()
        answer = self.http.put(f"/api/tenants/acme/keys/{made['id']}/limits", json=limits)
        assert answer.status_code == 200, answer.text
        return str(made["secret"])

    def limit_tenant(self, **limits: int) -> None:
        answer = self.http.put("/api/operator/tenants/acme/limits", json=limits)
        assert answer.status_code == 200, answer.text

    def standing(self, key: str = "") -> dict[str, Any]:
        shown = self.http.get("/api/tenants/acme/limits").json()
        if not key:
            return dict(shown["tenant"]["used"])
        return next(dict(each["used"]) for each in shown["keys"] if f"lk_{each['prefix']}_" in key)
