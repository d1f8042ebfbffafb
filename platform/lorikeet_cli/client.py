"""HTTP requests to one server with one caller's credentials."""

from __future__ import annotations

import http.client
import json
import os
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from lorikeet_cli.errors import TRY_AGAIN, CliError
from lorikeet_cli.profile import Profile, load

# Seconds without a byte from the server.
TIMEOUT_S = 60.0
CHUNK_BYTES = 1 << 20
# Rows of one request for a list: the server's maximum.
PAGE_ROWS = 200


class Client:
    """A caller of one server. Every method raises CliError, with the server's own message if it sent one."""

    def __init__(self, profile: Profile | None = None) -> None:
        self._profile = profile
        # The name of the saved profile to use; "" for the one of the environment, or the current one.
        self.profile_name = ""

    @cached_property
    def profile(self) -> Profile:
        """The caller's profile; read at its first use, because `login` needs none."""
        return self._profile or load(self.profile_name)

    def tenant(self, method: str, *path: object, body: object = None, **query: object) -> Any:
        """Send a request below the tenant's address and return the JSON of its response."""
        return self.call(method, self.tenant_path(*path), body, **query)

    def tenant_path(self, *path: object) -> str:
        """Return the address of a resource of the tenant. Each argument is one segment, whatever is in it."""
        if not self.profile.tenant:
            raise CliError("No tenant is chosen.", "Set LORIKEET_TENANT, or log in with --tenant.", code="no_tenant")
        return _path("api", "tenants", self.profile.tenant, *path)

    def operator(self, method: str, *path: object, body: object = None) -> Any:
        """Send a request below the operator's address and return the JSON of its response."""
        return self.call(method, _path("api", "operator", *path), body)

    def rows(self, *path: object, limit: int, **filters: object) -> tuple[list[Any], int]:
        """Return up to `limit` rows of a list of the tenant, and the number of all its rows that pass the filters."""
        rows: list[Any] = []
        while True:
            query = {"limit": min(PAGE_ROWS, limit - len(rows)), "offset": len(rows), **filters}
            page, total = self.page(self.tenant_path(*path), **query)
            rows += page
            total = total or len(rows)
            if not page or len(rows) >= min(limit, total):
                return rows, total

    def page(self, path: str, **query: object) -> tuple[Any, int]:
        """Return the JSON of a part of a list, and the number of all its rows; 0 if the server does not say it."""
        with self.send("GET", path + _query(query), {}, [], 0) as response:
            return self.parse(response), int(response.headers.get("X-Total-Count") or 0)

    def call(self, method: str, path: str, body: object = None, **query: object) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if data is not None else {}
        with self.send(method, path + _query(query), headers, [data] if data else [], len(data or b"")) as response:
            return self.parse(response)

    def events(self, path: str, body: object) -> Iterator[Any]:
        """Send a request for server-sent events and yield the JSON of each, until `[DONE]`."""
        data = json.dumps(body).encode()
        with self.send("POST", path, {"Content-Type": "application/json"}, [data], len(data)) as response:
            if response.status >= 300:
                self.parse(response)
            for line in response:
                text = line.decode().strip().removeprefix("data:").strip()
                if line.startswith(b"data:") and text == "[DONE]":
                    return
                if line.startswith(b"data:"):
                    event = json.loads(text)
                    if "error" in event:
                        raise CliError.from_response(response.status, event)
                    yield event
            raise self._unreachable("the connection ended before the answer did")

    def stream(self, path: str, **query: object) -> Iterator[bytes]:
        """Yield the body of a file. Raises CliError if the connection ends before the file does."""
        with self.send("GET", path + _query(query), {}, [], 0) as response:
            if response.status >= 300:
                self.parse(response)
            while chunk := response.read(CHUNK_BYTES):
                yield chunk
            if response.length:  # http.client does not report a body that is shorter than its Content-Length
                raise self._unreachable(f"the connection ended {response.length} bytes too early")

    @contextmanager
    def send(
        self, method: str, path: str, headers: Mapping[str, str], body: Iterable[bytes], length: int
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request and yield the response, also one that comes before the whole body was read."""
        connection = self._connection()
        try:
            connection.putrequest(method, path)
            for name, value in {**self._credentials(path), **headers}.items():
                connection.putheader(name, value)
            connection.putheader("Content-Length", str(length))
            try:
                connection.endheaders()
                for chunk in body:
                    connection.send(chunk)
            except (BrokenPipeError, ConnectionResetError):
                pass  # the server refused the body; its response says why
            yield connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(str(error) or type(error).__name__, error) from error
        finally:
            connection.close()

    def parse(self, response: http.client.HTTPResponse) -> Any:
        """Return the JSON of a response; None for an empty one. Raises CliError for every other response."""
        raw = response.read()
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            body = None
        if 300 <= response.status < 400:
            to = response.headers.get("Location", "another address")
            message = f"{self.profile.url} redirects to {to}."
            raise CliError(message, "Log in to that address.", code="redirected")
        if response.status >= 400:
            raise CliError.from_response(response.status, body)
        if raw and body is None:
            message = f"{self.profile.url} answered with something other than JSON."
            raise CliError(message, "Check the address: is it a Lorikeet server's?", code="no_json")
        return body

    def _unreachable(self, reason: str, error: Exception | None = None) -> CliError:
        fix = "Check the address, and whether the server runs."
        if isinstance(error, ssl.SSLCertVerificationError):
            fix = "Trust the server's certificate: SSL_CERT_FILE=/path/to/ca.pem."
        return CliError(f"{self.profile.url} does not answer: {reason}", fix, code="unreachable", exit_code=TRY_AGAIN)

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.profile.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        return kind(str(parts.hostname), parts.port, timeout=TIMEOUT_S)

    def inference_key(self) -> str:
        """Return the API key of requests to models, which take no session. Raises CliError if there is none."""
        if key := self.profile.key or os.environ.get("LORIKEET_KEY", ""):
            return key
        fix = "Set LORIKEET_KEY to a key of `lorikeet keys create NAME --scope infer`, or `lorikeet login --key`."
        raise CliError("Models are called with an API key, and this login has none.", fix, code="no_key")

    def _credentials(self, path: str) -> dict[str, str]:
        profile, headers = self.profile, {"Accept": "*/*", "User-Agent": "lorikeet-cli"}
        if key := self.inference_key() if path.startswith("/v1/") else profile.key:
            if not key.isascii() or not key.isprintable():
                raise CliError("The API key holds characters that no key has.", "Copy it again.", code="bad_key")
            return {**headers, "Authorization": f"Bearer {key}"}
        cookies = {"lorikeet_session": profile.session, "lorikeet_csrf": profile.csrf}
        cookie = "; ".join(f"{name}={value}" for name, value in cookies.items() if value)
        page = {"Origin": profile.url, "Referer": profile.url + "/"}
        return {**headers, **page, "Cookie": cookie, "X-CSRFToken": profile.csrf}


def log_in(url: str, email: str, password: str, read_code: Callable[[], str]) -> tuple[Profile, list[str]]:
    """Start a session. Returns its profile, with no tenant yet, and the tenants that it may enter.

    `read_code` is called for a code if the account has a second factor.
    """
    visitor = Client(Profile(url, ""))
    with visitor.send("GET", "/api/session", {}, [], 0) as response:
        csrf = _cookie(response, "lorikeet_csrf")
        visitor.parse(response)
    body = json.dumps({"email": email, "password": password}).encode()
    caller, headers = Client(Profile(url, "", csrf=csrf)), {"Content-Type": "application/json"}
    with caller.send("POST", "/api/session", headers, [body], len(body)) as response:
        made = _session_of(url, csrf, response)
        session, step = visitor.parse(response), _cookie(response, "lorikeet_sign_in")
    if session.get("second_factor_for"):
        body = json.dumps({"code": read_code()}).encode()
        cookies = {"lorikeet_sign_in": step, "lorikeet_csrf": csrf}
        headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
        with caller.send("POST", "/api/session/second-factor", headers, [body], len(body)) as response:
            made = _session_of(url, csrf, response)
            session = visitor.parse(response)
    return made, [tenant["slug"] for tenant in session["tenants"]]


def _session_of(url: str, csrf: str, response: http.client.HTTPResponse) -> Profile:
    return Profile(
        url, "", session=_cookie(response, "lorikeet_session"), csrf=_cookie(response, "lorikeet_csrf") or csrf
    )


def _cookie(response: http.client.HTTPResponse, name: str) -> str:
    for header in response.headers.get_all("Set-Cookie") or []:
        cookies: SimpleCookie = SimpleCookie(header)
        if name in cookies:
            return cookies[name].value
    return ""


def _path(*segments: object) -> str:
    return "".join(f"/{quote(str(segment), safe='')}" for segment in segments)


def _query(query: Mapping[str, object]) -> str:
    present = {name: value for name, value in query.items() if value is not None}
    return f"?{urlencode(present)}" if present else ""
