"""The balancers of `deploy/balancers` with their files, translated to ports and a certificate of this machine."""

from __future__ import annotations

import datetime
import ipaddress
import os
import socket
import ssl
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from lorikeet_testing.web import ROOT, eventually, free_port
from scripts.launch.system import server_program

FILES = ROOT / "deploy" / "balancers"
SERVERS = ("web1:8000", "web2:8000")  # as the files name the web processes
KINDS = {"haproxy": "haproxy.cfg", "nginx": "nginx.conf", "caddy": "Caddyfile"}


@dataclass(frozen=True)
class Certificate:
    """A certificate for 127.0.0.1 that signs itself, its key, and both in one file."""

    certificate: Path
    key: Path
    both: Path

    @classmethod
    def make(cls, folder: Path) -> Certificate:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
        now = datetime.datetime.now(datetime.UTC)
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        signed = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=7))
            .add_extension(x509.SubjectAlternativeName([address]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        made = cls(folder / "lorikeet.crt", folder / "lorikeet.key", folder / "lorikeet.pem")
        made.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        made.key.write_bytes(secret)
        made.both.write_bytes(made.certificate.read_bytes() + secret)
        return made

    def trusted(self) -> ssl.SSLContext:
        """Return a client's context that trusts only this certificate."""
        return ssl.create_default_context(cafile=str(self.certificate))


class Balancer:
    """A running balancer in front of two web processes."""

    def __init__(self, kind: str, folder: Path, ports: Sequence[int]) -> None:
        self.kind, self.folder, self.port = kind, folder, free_port()
        folder.mkdir()
        self.certificate = Certificate.make(folder)
        self.url = f"https://127.0.0.1:{self.port}"
        text = (FILES / KINDS[kind]).read_text()
        pairs = {**self._translations(), **{s: f"127.0.0.1:{port}" for s, port in zip(SERVERS, ports, strict=True)}}
        for theirs, ours in pairs.items():
            assert theirs in text, f"{KINDS[kind]} has no {theirs!r}"
            text = text.replace(theirs, ours)
        self._file = folder / KINDS[kind]
        self._file.write_text(text)
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                self._command(), env=self._environment(), cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        eventually(self._listens, 30, what=f"{kind} listens: {self.log()}")

    def _translations(self) -> Mapping[str, str]:
        plain, made = free_port(), self.certificate
        if self.kind == "haproxy":
            secure = f"bind 127.0.0.1:{self.port} ssl crt {made.both}"
            return {"bind :443 ssl crt /etc/haproxy/lorikeet.pem": secure, "bind :80": f"bind 127.0.0.1:{plain}"}
        if self.kind == "nginx":
            temporary = "".join(
                f"    {name}_temp_path {self.folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi")
            ) + "".join(f"    {name}_temp_path {self.folder}/{name};\n" for name in ("uwsgi", "scgi"))
            return {
                "listen 443": f"listen 127.0.0.1:{self.port}",
                "listen 80": f"listen 127.0.0.1:{plain}",
                "/etc/nginx/lorikeet": str(self.folder / "lorikeet"),
                "/run/nginx.pid": str(self.folder / "nginx.pid"),
                "http {\n": f"http {{\n{temporary}",
            }
        return {
            "lorikeet.example.org {": f"{self.url} {{",
            "/etc/caddy/lorikeet": str(self.folder / "lorikeet"),
            "admin off\n": "admin off\n\tauto_https disable_redirects\n",
        }

    def _command(self) -> list[str]:
        program = server_program(self.kind)
        assert program, f"{self.kind} is missing: apt-get install {self.kind}, as `make test` does"
        if self.kind == "haproxy":
            return [program, "-db", "-f", str(self._file)]
        if self.kind == "nginx":
            # As root its workers change to an account that may not enter the folders of tests.
            account = " user root;" if os.geteuid() == 0 else ""
            return [program, "-p", str(self.folder), "-c", str(self._file), "-g", f"daemon off;{account}"]
        return [program, "run", "--config", str(self._file), "--adapter", "caddyfile"]

    def _environment(self) -> dict[str, str]:
        home = str(self.folder)
        return {**os.environ, "HOME": home, "XDG_DATA_HOME": home, "XDG_CONFIG_HOME": home}

    def _listens(self) -> bool:
        assert self._process.poll() is None, self.log()
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(2)  # it may wait for streams that tests have left open
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
