"""Every setting of the control plane, typed, from `LORIKEET_*` environment variables.

Django's settings module reads this object and nothing else, so the environment describes a process completely. Code
that runs inside Django calls `current()`, which tests can override.
"""

import contextlib
import importlib.util
import ipaddress
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from lorikeet_version import is_checkout

REPOSITORY = Path(__file__).resolve().parents[3]
GIB = 1 << 30
# The data folder and the built console: in a checkout below it, else in the home folder and in the installed package.
_VAR_DIR = REPOSITORY / "var" if is_checkout() else Path("~/.local/share/lorikeet")
_CONSOLE_DIR = REPOSITORY / "frontend" / "dist" if is_checkout() else Path(__file__).parents[1] / "console_files"


class SettingsError(ValueError):
    """A combination of settings that cannot work; the message says which and what to set."""


_PERIODS = {"s": 1, "min": 60, "hour": 3600, "day": 86_400}


@dataclass(frozen=True)
class Rate:
    """A maximum number of events within a period of seconds; "10/min" or "5/hour" in the environment."""

    count: int
    seconds: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a rate such as "10/min". Raises SettingsError."""
        count, _, period = (part.strip() for part in text.partition("/"))
        seconds = next((seconds for name, seconds in _PERIODS.items() if period and name[0] == period[0]), None)
        if seconds is None or not (count.isascii() and count.isdigit() and int(count)):
            raise SettingsError(f'"{text}" is not a rate. Write a number and a period, for example 10/min.')
        return cls(int(count), seconds)

    def __str__(self) -> str:
        return f"{self.count}/{next(name for name, seconds in _PERIODS.items() if seconds == self.seconds)}"


class Settings(BaseSettings):
    """The control plane's settings. Every field is the variable `LORIKEET_<FIELD>`."""

    model_config = SettingsConfigDict(env_prefix="LORIKEET_", extra="ignore")
    # Django reads this attribute of every value at every access. pydantic is slow to report that it does not exist,
    # which took a tenth of the web process's work for a short request.
    _mask_wrapped: ClassVar[bool] = True

    debug: bool = False
    demo: bool = False
    secret_key: str = ""
    key_pepper: str = ""
    sealing_key: str = ""
    authority_key: str = ""
    webhook_key: str = ""
    allowed_hosts: str = "localhost,127.0.0.1,[::1]"
    trusted_origins: str = ""
    secure_cookies: bool = False
    trust_proxy: bool = False
    public_url: str = ""
    password_login: bool = True
    passkey_rp_id: str = ""
    passkey_origins: str = ""
    oidc_issuer: str = ""
    oidc_client_id: str = ""
    oidc_client_secret: str = ""
    oidc_name: str = "single sign-on"
    oidc_domains: str = ""
    mail_url: str = ""
    mail_from: str = "Lorikeet <lorikeet@localhost>"

    var_dir: Path = _VAR_DIR
    secrets_dir: Path | None = None
    artifact_dir: Path | None = None
    artifact_url: str = ""
    artifact_signed_s: int = Field(default=3600, gt=0, le=604_800)
    console_dir: Path = _CONSOLE_DIR
    demo_dir: Path = REPOSITORY / "demo"

    database_url: str = ""
    database_pool: int = Field(default=10, ge=0)
    database_answer_s: float = Field(default=10.0, gt=0)
    database_grace_s: int = Field(default=120, ge=0)
    redis_url: str = ""
    embedded: bool | None = None

    engine_hosts: Annotated[dict[str, str], NoDecode] = Field(default_factory=dict)
    engine_token: str = ""
    engine_tls_ca: Path | None = None
    engine_insecure_tcp: bool = False
    host_certificate_s: int = Field(default=30 * 86_400, ge=60)
    routing_policy: str = "first_token"
    engine_hang_s: float = Field(default=30.0, ge=2)  # the engine sends a heartbeat every second
    placement: Literal["everywhere", "demand"] = "everywhere"
    stage_from_peers: bool = True
    host_requests: int = Field(default=512, ge=0)
    host_return_s: float = Field(default=30.0, ge=0)
    migration: str = "off"

    connections_max: int = Field(default=4096, gt=0)
    connections_per_address: int = Field(default=512, ge=0)
    stranger_requests_per_s: float = Field(default=50, ge=0)
    caller_cpu_share: float = Field(default=0.3, ge=0)
    bodies_max_bytes: int = Field(default=256 << 20, gt=0)
    request_max_bytes: int = Field(default=4 << 20, gt=0)
    request_max_choices: int = Field(default=128, gt=0)
    socket_max_message_bytes: int = Field(default=1 << 20, gt=0)
    socket_max_generations: int = Field(default=32, gt=0)

    idempotency_s: int = Field(default=3600, gt=0)
    idempotency_max_answers: int = Field(default=1000, gt=0)
    idempotency_max_bytes: int = Field(default=16 << 20, ge=1 << 20)
    quota_fail_open: bool = False
    quota_output_tokens: int = Field(default=1024, gt=0)

    response_expire_s: int = Field(default=30 * 86_400, gt=0)
    responses_max_stored: int = Field(default=10_000, gt=0)
    batch_file_max_bytes: int = Field(default=32 << 20, gt=0)
    batch_max_lines: int = Field(default=50_000, gt=0)
    batch_tenant_bytes: int = Field(default=GIB, gt=0)
    batch_file_expire_s: int = Field(default=30 * 86_400, gt=0)
    batch_concurrency: int = Field(default=32, gt=0)
    evaluation_max_bytes: int = Field(default=1 << 20, gt=0)
    evaluation_max_items: int = Field(default=500, gt=0)
    evaluation_wait_s: int = Field(default=86_400, gt=0)

    ledger_months: int = Field(default=6, ge=0)
    audit_months: int = Field(default=13, ge=0)
    hourly_usage_days: int = Field(default=400, ge=92)
    closed_rows_days: int = Field(default=400, ge=30)

    upload_max_bytes: int = Field(default=0, ge=0)  # 0: as large as engines accept
    upload_max_files: int = Field(default=16, gt=0)
    upload_expire_s: int = Field(default=86_400, gt=0)
    hub_url: str = "https://huggingface.co"
    follow_poll_s: int = Field(default=900, ge=60)
    hub_model_wait_s: float = Field(default=10.0, ge=0)
    wake_wait_s: float = Field(default=50.0, ge=0)
    hub_model_retry_s: int = Field(default=300, ge=0)
    hub_models_per_hour: int = Field(default=60, gt=0)
    import_wall_s: int = Field(default=1800, gt=0)
    import_allow_private: bool = False
    archive_keep_s: int = Field(default=30 * 86_400, ge=0)
    base_model_names: str = ""
    max_lora_rank: int = Field(default=256, ge=1, le=512)
    validate_wall_s: int = Field(default=300, gt=0)
    validate_cpu_s: int = Field(default=240, gt=0)
    validate_memory_bytes: int = Field(default=4 * GIB, gt=0)

    webhook_allow_private: bool = False
    tenant_validations: int = Field(default=2, gt=0)
    tenant_stagings: int = Field(default=2, gt=0)
    tenant_deliveries: int = Field(default=2, gt=0)

    metrics_token: str = ""
    metrics_port: int = Field(default=0, ge=0, le=65_535)
    metrics_host: str = "127.0.0.1"
    metrics_names: int = Field(default=20, ge=0, le=200)
    otlp_url: str = ""
    trace_share: float = Field(default=1.0, ge=0, le=1)
    drain_s: int = Field(default=30, ge=0)
    drain_notice_s: int = Field(default=0, ge=0)
    login_rate: Annotated[Rate, NoDecode] = Rate(10, 60)
    login_account_rate: Annotated[Rate, NoDecode] = Rate(30, 60)
    password_hashes: int = Field(default=2, gt=0)
    log_level: str = "INFO"
    log_json: bool = True
    log_requests: float = Field(default=1.0, ge=0, le=1)

    @model_validator(mode="before")
    @classmethod
    def _parse_engine_hosts(cls, values: dict[str, object]) -> dict[str, object]:
        hosts = values.get("engine_hosts")
        if isinstance(hosts, str):
            values["engine_hosts"] = parse_engine_hosts(hosts)
        return values

    @field_validator("login_rate", "login_account_rate", mode="before")
    @classmethod
    def _parse_rate(cls, value: object) -> object:
        return Rate.parse(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _complete(self) -> Self:
        self.var_dir = self.var_dir.expanduser().absolute()
        self.artifact_dir = (self.artifact_dir or self.var_dir / "artifacts").expanduser().absolute()
        local = ("http://localhost", "http://127.0.0.1")
        if self.oidc_issuer and not self.oidc_issuer.startswith(("https://", *local)):
            raise SettingsError("LORIKEET_OIDC_ISSUER must begin with https://, as the provider's own pages show it.")
        if self.artifact_url and not self.artifact_url.startswith("s3://"):
            raise SettingsError("LORIKEET_ARTIFACT_URL must look like s3://bucket/prefix; a folder is _ARTIFACT_DIR.")
        for name in ("ledger_months", "audit_months"):
            if getattr(self, name) == 1:
                raise SettingsError(
                    f"LORIKEET_{name.upper()} is 1. Set at least 2, so that a month is settled before it is archived, "
                    "or 0 to keep all rows."
                )
        self._require_matching_passkey_origins()
        self._require_tls_to_engines()
        if self.otlp_url and not _has_opentelemetry():
            raise SettingsError(
                "LORIKEET_OTLP_URL is set, but OpenTelemetry is not installed. Run pip install '.[otel]' in the "
                "checkout, or leave the setting out."
            )
        if self.migration != "off" and importlib.util.find_spec("highspy") is None:
            raise SettingsError(
                "LORIKEET_MIGRATION is set, but the solver HiGHS is not installed. Run pip install "
                "'.[migration]' in the checkout, or leave the setting out."
            )
        if not self.password_login and not (self.oidc_issuer and self.oidc_client_id):
            raise SettingsError(
                "LORIKEET_PASSWORD_LOGIN is off and there is no identity provider, so nobody could sign in. "
                "Set LORIKEET_OIDC_ISSUER and LORIKEET_OIDC_CLIENT_ID."
            )
        if self.database_url and not self.secret_key:
            raise SettingsError(
                "LORIKEET_DATABASE_URL is set but LORIKEET_SECRET_KEY is not. Processes that share a database must "
                "share the secret: set LORIKEET_SECRET_KEY to the same long random value for web, worker and beat."
            )
        return self

    def _require_matching_passkey_origins(self) -> None:
        """Refuse origins at which browsers would not offer the passkeys of the relying party."""
        if self.passkey_rp_id and not (self.passkey_origins or self.public_url or self.trusted_origins):
            raise SettingsError("LORIKEET_PASSKEY_RP_ID needs LORIKEET_PUBLIC_URL or LORIKEET_PASSKEY_ORIGINS.")
        for origin in split_list(self.passkey_origins):
            host = urlsplit(origin).hostname or ""
            rp_id = self.passkey_rp_id or host
            if not origin.startswith(("https://", "http://localhost")) or not f".{host}".endswith(f".{rp_id}"):
                raise SettingsError(
                    f'LORIKEET_PASSKEY_ORIGINS holds "{origin}". Write origins such as https://lorikeet.example.org, '
                    "whose host is LORIKEET_PASSKEY_RP_ID or below it."
                )

    def _require_tls_to_engines(self) -> None:
        """Refuse remote engines without TLS, so that the token, prompts and answers never travel in the clear."""
        if self.engine_tls_ca is not None or self.engine_insecure_tcp:
            return
        exposed = [name for name, address in self.engine_hosts.items() if not is_local(address)]
        if exposed:
            raise SettingsError(
                f"LORIKEET_ENGINE_HOSTS names {', '.join(exposed)} on other machines, but LORIKEET_ENGINE_TLS_CA is "
                "not set: the token, prompts and answers would travel without TLS. Set it, or set "
                "LORIKEET_ENGINE_INSECURE_TCP=true if the network between the machines is encrypted already."
            )

    @property
    def address(self) -> str:
        """The console's public URL without a slash at the end: the base of links in mails."""
        origins = split_list(self.trusted_origins)
        return (self.public_url or (origins[0] if origins else "http://127.0.0.1:8000")).rstrip("/")

    @property
    def secrets(self) -> Path:
        """Folder of the secrets that have no setting."""
        return (self.secrets_dir or self.var_dir).expanduser().absolute()

    @property
    def artifacts(self) -> Path:
        """Root of the artifact store."""
        assert self.artifact_dir is not None
        return self.artifact_dir

    @property
    def is_embedded(self) -> bool:
        """True if the web process runs the Celery worker itself: by default when there is no Redis."""
        return self.embedded if self.embedded is not None else not self.redis_url

    @property
    def sqlite_path(self) -> Path:
        return self.var_dir / "lorikeet.sqlite3"


def _has_opentelemetry() -> bool:
    with contextlib.suppress(ModuleNotFoundError):  # find_spec imports the packages above
        return importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http.trace_exporter") is not None
    return False


def parse_engine_hosts(text: str) -> dict[str, str]:
    """Parse a setting such as `"local=unix:/run/e.sock,gpu1=10.0.0.2:7000"` to addresses by name."""
    hosts: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, equals, address = item.partition("=")
        if not (name and equals and address):
            raise SettingsError(
                f'LORIKEET_ENGINE_HOSTS holds "{item}". Write name=address pairs separated by commas, '
                'for example "local=unix:/run/lorikeet/engine.sock".'
            )
        hosts[name.strip()] = address.strip()
    return hosts


def is_local(address: str) -> bool:
    """Return True if an engine's address cannot be reached from other machines: a Unix socket, or loopback."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def split_list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def read_or_create_secret(path: Path) -> str:
    """Return the random secret in `path`, made on first use with mode 0600. Concurrent starts agree on one secret."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(48))
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass  # another process created it first: use its secret
    finally:
        temporary.unlink()
    return path.read_text().strip()


def current() -> Settings:
    """Return the settings of the running process, from Django's settings, where tests override them."""
    from django.conf import settings

    value: Settings = settings.LORIKEET
    return value
