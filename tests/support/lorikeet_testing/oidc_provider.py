"""An OpenID Connect provider on this machine: real HTTP, real signatures, and no questions asked.

`/authorize` signs in whoever `person` is and leads back at once. It checks what a provider must: the redirect address,
the client's secret, PKCE, and that a code is used once.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jws
from joserfc.jwk import KeySet, RSAKey

CLIENT_ID, CLIENT_SECRET = "lorikeet", "provider's secret"


class Provider:
    """An OpenID provider that serves until `close`. `signing_key` may be replaced.

    `claims` are added to every token, `metadata` to the discovery document, `answer` to the query that leads back. A
    function in `faults` answers its path ("/token", "/jwks", "/.well-known/openid-configuration") instead.
    """

    def __init__(self) -> None:
        self.person: dict[str, Any] = {"sub": "p1", "email": "ada@example.org", "email_verified": True, "name": "Ada"}
        self.claims: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.answer: dict[str, str] = {}
        self.faults: dict[str, Callable[[BaseHTTPRequestHandler], None]] = {}
        self.signing_key = self.new_key()
        self.published = KeySet([self.signing_key])
        self.queries: list[dict[str, str]] = []
        self.codes: dict[str, dict[str, str]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @staticmethod
    def new_key() -> RSAKey:
        return RSAKey.generate_key(2048, {"use": "sig", "kid": secrets.token_hex(4)}, auto_kid=False)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def id_token(self, nonce: str) -> str:
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 300, "nonce": nonce}
        header = {"alg": "RS256", "kid": self.signing_key.kid}
        payload = json.dumps({**claims, **self.person, **self.claims})
        return jws.serialize_compact(header, payload, self.signing_key)

    def _authorize(self, query: dict[str, str]) -> str:
        self.queries.append(query)
        assert query["client_id"] == CLIENT_ID
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(8)
        self.codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state'], **self.answer})}"

    def _token(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        query = self.codes.pop(form.get("code", ""), None)
        basic = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        verifier = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(verifier).decode().rstrip("=")
        if query is None or challenge != query["code_challenge"] or form["redirect_uri"] != query["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        if basic not in (f"{CLIENT_ID}:{CLIENT_SECRET}", f"{CLIENT_ID}:provider%27s%20secret"):
            return 401, {"error": "invalid_client"}
        token = {"access_token": "a", "token_type": "Bearer", "id_token": self.id_token(query["nonce"])}
        return 200, token

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *arguments: Any) -> None:
                pass

            def do_GET(self) -> None:
                url = urlsplit(self.path)
                if url.path in provider.faults:
                    provider.faults[url.path](self)
                elif url.path == "/authorize":
                    query = {name: values[0] for name, values in parse_qs(url.query).items()}
                    self.send_response(302)
                    self.send_header("Location", provider._authorize(query))
                    self.end_headers()
                elif url.path == "/jwks":
                    self._json(200, provider.published.as_dict())
                else:
                    endpoints = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "jwks"}
                    urls = {name: f"{provider.issuer}/{path}" for name, path in endpoints.items()}
                    self._json(200, {"issuer": provider.issuer, **urls, **provider.metadata})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                if self.path in provider.faults:
                    provider.faults[self.path](self)
                    return
                form = {name: values[0] for name, values in parse_qs(body).items()}
                self._json(*provider._token(form, self.headers.get("Authorization", "")))

            def _json(self, status: int, document: object) -> None:
                text = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

        return Handler
