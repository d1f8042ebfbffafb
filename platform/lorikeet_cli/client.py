"""HTTP to one server, as one caller."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from lorikeet_cli.errors import CliError
from lorikeet_cli.profile import Profile

TIMEOUT_S = 60.0
CHUNK = 1 << 20


class Client:
    """`call` for JSON, `stream` for files. Raises CliError in the server's words."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile

    def tenant(self, method: str, path: str, body: object = None, **query: object) -> Any:
        """A call below the tenant's address."""
        return self.call(method, self.tenant_path(path), body, **query)

    def tenant_path(self, path: str) -> str:
        if not self.profile.tenant:
            raise CliError("No tenant is chosen.", "Set LORIKEET_TENANT, or log in with --tenant.")
        return f"/api/tenants/{quote(self.profile.tenant, safe='')}/{path}"

    def call(self, method: str, path: str, body: object = None, **query: object) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if data is not None else {}
        with self.send(method, path + _query(query), headers, [data] if data else [], len(data or b"")) as answer:
            return parsed(answer)

    def stream(self, path: str, **query: object) -> Iterator[bytes]:
        with self.send("GET", path + _query(query), {}, [], 0) as answer:
            if answer.status >= 400:
                parsed(answer)
            while chunk := answer.read(CHUNK):
                yield chunk

    @contextmanager
    def send(
        self, method: str, path: str, headers: Mapping[str, str], body: Iterable[bytes], length: int
    ) -> Iterator[http.client.HTTPResponse]:
        """The answer, also when the server gives it before it has read the whole body."""
        connection = self._connection()
        try:
            connection.putrequest(method, path)
            for name, value in {**self._identity(), **headers}.items():
                connection.putheader(name, value)
            connection.putheader("Content-Length", str(length))
            try:
                connection.endheaders()
                for chunk in body:
                    connection.send(chunk)
            except (BrokenPipeError, ConnectionResetError):
                pass  # it has refused already: its answer says why
            yield connection.getresponse()
        except (OSError, http.client.HTTPException) as failure:
            reason = str(failure) or type(failure).__name__
            raise CliError(f"{self.profile.url} does not answer: {reason}", "Check the address.") from failure
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.profile.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise CliError(f'"{self.profile.url}" is no address.', "Write it like https://lorikeet.example.org.")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        return kind(parts.hostname, parts.port, timeout=TIMEOUT_S)

    def _identity(self) -> dict[str, str]:
        own = self.profile
        identity = {"Accept": "*/*", "User-Agent": "lorikeet-cli"}
        if own.key:
            return {**identity, "Authorization": f"Bearer {own.key}"}
        cookies = {"lorikeet_session": own.session, "lorikeet_csrf": own.csrf}
        given = "; ".join(f"{name}={value}" for name, value in cookies.items() if value)
        return {**identity, "Cookie": given, "X-CSRFToken": own.csrf, "Origin": own.url, "Referer": own.url + "/"}


def log_in(url: str, email: str, password: str) -> tuple[Profile, list[str]]:
    """A session, not yet of a tenant, and the tenants that it may enter."""
    visitor = Client(Profile(url, ""))
    with visitor.send("GET", "/api/session", {}, [], 0) as answer:
        csrf = _cookie(answer, "lorikeet_csrf")
        parsed(answer)
    body = json.dumps({"email": email, "password": password}).encode()
    headers = {"Content-Type": "application/json"}
    known = Client(Profile(url, "", csrf=csrf))
    with known.send("POST", "/api/session", headers, [body], len(body)) as answer:
        session, csrf = _cookie(answer, "lorikeet_session"), _cookie(answer, "lorikeet_csrf") or csrf
        tenants = [tenant["slug"] for tenant in parsed(answer)["tenants"]]
    return Profile(url, "", session=session, csrf=csrf), tenants


def _cookie(answer: http.client.HTTPResponse, name: str) -> str:
    for header in answer.headers.get_all("Set-Cookie") or []:
        cookies: SimpleCookie = SimpleCookie(header)
        if name in cookies:
            return cookies[name].value
    return ""


def _query(query: Mapping[str, object]) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return f"?{urlencode(given)}" if given else ""


def parsed(answer: http.client.HTTPResponse) -> Any:
    raw = answer.read()
    try:
        body = json.loads(raw) if raw else None
    except ValueError:
        body = None
    if answer.status >= 400:
        raise CliError.of_answer(answer.status, body)
    return body
