"""Webhooks go to public servers only, to the checked address, in bounded time, and tell nothing of our network."""

from __future__ import annotations

import datetime
import http.server
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from control_plane.console.webhooks import delivery
from control_plane.console.webhooks.events import publish
from control_plane.console.webhooks.models import Attempt, Endpoint, EventType
from control_plane.core.http import egress
from control_plane.core.http.egress import (
    EgressError,
    NotPublicError,
    UrlRefusedError,
    check_url,
    is_public,
    resolve,
)

HOST = "hooks.example.org"
NOT_PUBLIC = [
    # IPv4: each block of the registry, by its first, last or best known address
    "0.0.0.0", "0.255.255.255", "10.1.2.3", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254",
    "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.9", "192.0.0.170", "192.0.0.192",
    "192.0.2.1", "192.31.196.1", "192.52.193.1", "192.88.99.1", "192.168.1.1", "192.175.48.1", "198.18.0.1",
    "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "168.63.129.16",
    # IPv6: the same, and IPv4 within IPv6 in every form
    "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:0:7f00:1", "64:ff9b::7f00:1",
    "64:ff9b::a00:1", "64:ff9b::c000:c0", "64:ff9b:1::1", "64:ff9b:1:ffff::a00:1", "100::1", "100:0:0:1::1",
    "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:1::1", "2001:2::1", "2001:3::1", "2001:4:112::1",
    "2001:10::1", "2001:20::1", "2001:30::1", "2001:db8::1", "2002:7f00:1::", "2002:a00:1::1", "2002:808:808::1",
    "2620:4f:8000::1", "3fff::1", "5f00::1", "4000::1", "fc00::1", "fd00:ec2::254", "fd20:ce::254", "fe80::1",
    "fe80::1%eth0", "2606:4700::1111%eth0", "fec0::1", "feff::1", "ff02::1", "ff0e::1",
]  # fmt: skip
PUBLIC = [
    "1.1.1.1", "93.184.216.34", "9.255.255.255", "100.63.255.255", "172.32.0.1", "192.0.1.1", "198.17.255.255",
    "223.255.255.255", "2606:4700::1111", "2a00:1450::1", "2001:200::1", "2001:4860:4860::8888", "64:ff9b::101:101",
]  # fmt: skip
BAD_URLS = [
    "http://example.org/", "ftp://example.org/", "//example.org/", "https://", "https:///x", "nonsense", "",
    "https://user:pass@example.org/", "https://user@example.org/", "https://:@example.org/", "https://example.org/#x",
    "https://exa mple.org/", "https://exa%20mple.org/", "https://exam\nple.org/", "https://example.org/\x00",
    "https://example.org:99999/", "https://example.org:0/", "https://example.org:x/", "https://ex_ample..org/",
    f"https://{'a' * 64}.org/", f"https://{'a.' * 130}org/",
    # Private addresses in every spelling that resolvers take
    "https://127.0.0.1/", "https://127.1/", "https://127.0.0.1./", "https://2130706433/", "https://0x7f000001/",
    "https://0x7f.1/", "https://0177.0.0.1/", "https://[::1]/", "https://[::ffff:10.0.0.1]/", "https://[fec0::1]/",
    "https://[fe80::1%25eth0]/", "https://[fe80::1%eth0]/", "https://169.254.169.254/latest/meta-data",
    "https://192.0.0.192/opc/v2/instance/", "https://10.0.0.1:8000/", "https://１２７.0.0.1/",
    # Names that only our own network knows
    "https://localhost/", "https://redis:6379/", "https://postgres/", "https://localhost./",
]  # fmt: skip


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_no_server_on_the_internet(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_a_server_on_the_internet(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize("url", BAD_URLS)
def test_urls_that_are_refused_at_once(url: str) -> None:
    with pytest.raises(UrlRefusedError):
        check_url(url)


@pytest.mark.parametrize("url", ["https://example.org", "https://example.org:8443/a?b=c", "https://bücher.example/ä"])
def test_urls_that_are_taken(url: str) -> None:
    assert check_url(url).scheme == "https"


@pytest.mark.django_db
@pytest.mark.parametrize("url", ["https://[fec0::1]/", "https://192.0.0.192/", "https://redis/", "http://example.org/"])
def test_the_api_refuses_them(acme: Any, url: str) -> None:
    answer = acme.client().post(acme.path("webhooks"), {"url": url}, format="json")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "webhook_url_refused")
    assert answer.json()["error"]["param"] == "url"
    assert not Endpoint.objects.exists()


# -- names ---------------------------------------------------------------------------------------------------------


def leads_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """Let every name lead to `addresses`. Returns the list of names that are looked up."""
    asked: list[str] = []

    def look_up(host: str, port: int) -> list[str]:
        asked.append(host)
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return list(addresses)

    monkeypatch.setattr(egress, "_lookup_host", look_up)
    return asked


def never_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "_send", lambda *_: pytest.fail("it connected"))


@pytest.mark.parametrize(
    "addresses", [["10.0.0.5"], ["93.184.216.34", "10.0.0.5"], ["fec0::1"], ["fe80::1%eth0"], ["::ffff:10.0.0.5"]]
)
def test_one_private_address_is_enough(monkeypatch: pytest.MonkeyPatch, addresses: list[str]) -> None:
    leads_to(monkeypatch, *addresses)
    never_connects(monkeypatch)
    with pytest.raises(NotPublicError):
        egress.post(f"https://{HOST}/", b"", {})


@pytest.mark.django_db
def test_what_a_tenant_reads_does_not_tell_private_from_missing(acme: Any, queue: Any, monkeypatch: Any) -> None:
    """Neither the addresses of internal names, nor whether there is such a name."""
    body = {"url": f"https://{HOST}/"}
    hook = acme.client().post(acme.path("webhooks"), body, format="json").json()["id"]
    never_connects(monkeypatch)
    for addresses in (["10.0.0.5"], ["93.184.216.34", "fd00::17"], []):
        leads_to(monkeypatch, *addresses)
        publish(acme.tenant, EventType.VERSION_READY, {})
        Endpoint.objects.update(rests_until=None)
        delivery.deliver_next()
    texts = set(Attempt.objects.values_list("error", flat=True))
    assert Attempt.objects.count() == 3
    assert texts == {"The host name does not resolve to a public address."}
    shown = acme.client().get(acme.path(f"webhooks/{hook}/deliveries")).content.decode()
    assert "10.0.0.5" not in shown and "fd00::17" not in shown and "not known" not in shown


def test_what_was_registered_for_trying_out_is_not_called_later() -> None:
    with pytest.raises(UrlRefusedError):
        egress.post("http://127.0.0.1:1/", b"", {}, allow_private=False)


def test_a_name_server_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "LOOKUP_S", 0.05)
    answered = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answered.wait(30))
    began = time.monotonic()
    try:
        with pytest.raises(NotPublicError):
            resolve(HOST, 443)
        assert time.monotonic() - began < 10
    finally:
        answered.set()


def test_names_looked_up_at_once_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "_lookups", threading.BoundedSemaphore(1))
    egress._lookups.acquire()
    with pytest.raises(NotPublicError):
        resolve(HOST, 443)
    egress._lookups.release()


# -- connections ---------------------------------------------------------------------------------------------------


class Quiet(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.server.seen.append(self.headers)  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def listening(tls: ssl.SSLContext | None = None) -> Iterator[http.server.ThreadingHTTPServer]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    server.daemon_threads = True
    server.seen = []  # type: ignore[attr-defined]
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def certificate(folder: Path, name: str) -> ssl.SSLContext:
    """A server's context with a certificate for `name`, signed by itself; the file is folder/cert.pem."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "key.pem").write_bytes(private)
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


def test_the_checked_address_is_the_one_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second look-up, which a rebinding name server answers otherwise, does not happen."""
    asked = leads_to(monkeypatch, "127.0.0.1")
    looks_up = socket.getaddrinfo

    def others_only(host: str, *args: object, **kwargs: object) -> object:
        assert host != HOST, "it looked the name up again"
        return looks_up(host, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", others_only)
    with listening() as server:
        assert egress.post(f"http://{HOST}:{server.server_port}/x", b"{}", {}, allow_private=True) == 200
        assert server.seen[0]["Host"] == f"{HOST}:{server.server_port}"  # type: ignore[attr-defined]
    assert asked == [HOST]


def test_an_address_that_takes_no_connection_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    leads_to(monkeypatch, "::1", "127.0.0.1")
    with listening() as server:
        assert egress.post(f"http://{HOST}:{server.server_port}/", b"", {}, allow_private=True) == 200
        assert len(server.seen) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [HOST, "other.example.org"])
def test_tls_is_checked_against_the_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    leads_to(monkeypatch, "127.0.0.1")
    tls = certificate(tmp_path, name)
    monkeypatch.setattr(egress, "_tls", lambda: ssl.create_default_context(cafile=str(tmp_path / "cert.pem")))
    with listening(tls) as server:
        url = f"https://{HOST}:{server.server_port}/"
        if name == HOST:
            assert egress.post(url, b"", {}, allow_private=True) == 200
        else:
            with pytest.raises(EgressError, match="certificate was refused"):
                egress.post(url, b"", {}, allow_private=True)


def test_a_certificate_that_nobody_signed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    leads_to(monkeypatch, "127.0.0.1")
    with listening(certificate(tmp_path, HOST)) as server, pytest.raises(EgressError, match="certificate was refused"):
        egress.post(f"https://{HOST}:{server.server_port}/", b"", {}, allow_private=True)


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    leads_to(monkeypatch, "127.0.0.1")
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with listening() as server:
        assert egress.post(f"http://{HOST}:{server.server_port}/", b"", {}, allow_private=True) == 200


def drip(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 ")
    while True:
        connection.sendall(b"2")
        time.sleep(0.02)


def drip_header(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        connection.sendall(b"x")
        time.sleep(0.02)


def send_informational_forever(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        time.sleep(0.005)


def send_header_without_end(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X: " + b"x" * 60_000 + b"\r\n")


def say_nothing(connection: socket.socket) -> None:
    connection.recv(1 << 20)
    time.sleep(30)


def speak_something_else(connection: socket.socket) -> None:
    connection.sendall(b"220 mail.example.org ESMTP\r\n")
    time.sleep(30)


def close_at_once(connection: socket.socket) -> None:
    connection.close()


@contextmanager
def misbehaving(behaviour: Callable[[socket.socket], None]) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=[connection], daemon=True).start()

        def answer(connection: socket.socket) -> None:
            with connection:
                try:
                    behaviour(connection)
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(
    "behaviour",
    [
        drip,
        drip_header,
        send_informational_forever,
        send_header_without_end,
        say_nothing,
        speak_something_else,
        close_at_once,
    ],
)
def test_servers_that_misbehave(
    monkeypatch: pytest.MonkeyPatch, behaviour: Callable[[socket.socket], None], scheme: str
) -> None:
    """Each costs a bounded time, the TLS handshake included, and says nothing but that there was no answer."""
    monkeypatch.setattr(egress, "TOTAL_S", 0.4)
    with misbehaving(behaviour) as port:
        began = time.monotonic()
        with pytest.raises(EgressError) as failed:
            egress.post(f"{scheme}://127.0.0.1:{port}/", b"{}", {}, allow_private=True)
        assert time.monotonic() - began < 5
    assert "127.0.0.1" not in str(failed.value) and "Errno" not in str(failed.value)


def test_a_server_that_stops_speaking_tls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A failed attempt like any other: an error that nobody expects is tried again for ever."""
    leads_to(monkeypatch, "127.0.0.1")
    tls = certificate(tmp_path, HOST)
    monkeypatch.setattr(egress, "_tls", lambda: ssl.create_default_context(cafile=str(tmp_path / "cert.pem")))

    def write_beside_tls(connection: socket.socket) -> None:
        with tls.wrap_socket(connection, server_side=True) as secured:
            received = b""
            while not received.endswith(b"{}"):  # closing a connection with unread bytes would reset it
                received += secured.recv(1 << 16)
            os.write(secured.fileno(), b"\x17\x03\x03\x00\x20" + bytes(32))

    with misbehaving(write_beside_tls) as port, pytest.raises(EgressError, match="TLS connection failed"):
        egress.post(f"https://{HOST}:{port}/", b"{}", {}, allow_private=True)


def test_the_body_of_an_answer_is_not_read() -> None:
    sent = []

    def endless_body(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while True:
            sent.append(connection.send(b"x" * 65536))

    with misbehaving(endless_body) as port:
        assert egress.post(f"http://127.0.0.1:{port}/", b"", {}, allow_private=True) == 200
    assert sum(sent) < 64 << 20
