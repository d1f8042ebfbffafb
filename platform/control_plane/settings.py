"""Django's settings, all derived from `control_plane.core.config.Settings`."""

from typing import Any
from urllib.parse import unquote, urlsplit

from kombu.entity import Queue

from control_plane.core import redis_client
from control_plane.core.config import REPOSITORY, Settings, SettingsError, split_list
from control_plane.core.jobs import queues
from control_plane.core.postgres.url import parse_database_url
from control_plane.core.secrets.keys import accepted
from lorikeet_version import release

LORIKEET = Settings()

BASE_DIR = REPOSITORY
DEBUG = LORIKEET.debug
SECRET_KEY, *SECRET_KEY_FALLBACKS = accepted("secret-key", LORIKEET)
ALLOWED_HOSTS = split_list(LORIKEET.allowed_hosts)
CSRF_TRUSTED_ORIGINS = split_list(LORIKEET.trusted_origins)

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "channels",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "control_plane.apps.ControlPlaneConfig",
    "control_plane.identity.accounts",
    "control_plane.identity.tenants",
    "control_plane.identity.members",
    "control_plane.identity.second_factor",
    "control_plane.core.jobs",
    "control_plane.core.secrets",
    "control_plane.identity.keys",
    "control_plane.adapters.registry",
    "control_plane.adapters.uploads",
    "control_plane.adapters.imports",
    "control_plane.adapters.artifacts",
    "control_plane.fleet.hosts",
    "control_plane.fleet.base_models",
    "control_plane.fleet.joining",
    "control_plane.fleet.placements",
    "control_plane.billing.prices",
    "control_plane.billing.usage",
    "control_plane.billing.limits",
    "control_plane.billing.quotas",
    "control_plane.billing.slo",
    "control_plane.identity.audit",
    "control_plane.billing.archives",
    "control_plane.gateway.transcripts",
    "control_plane.gateway.api_settings",
    "control_plane.identity.origins",
    "control_plane.billing.refusals",
    "control_plane.console.webhooks",
    "control_plane.billing.reports",
    "control_plane.console.administration",
    "control_plane.adapters.canaries",
    "control_plane.gateway.batches",
    "control_plane.adapters.evaluations",
    "control_plane.gateway.conversations",
    "control_plane.gateway",
    "control_plane.console.live",
]

MIDDLEWARE = [
    "control_plane.core.http.metrics.MeasuringMiddleware",
    "control_plane.core.http.middleware.RequestIdMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "control_plane.core.http.middleware.SecurityHeadersMiddleware",
    "control_plane.core.http.compression.CompressionMiddleware",
    "control_plane.core.http.console.ConsoleMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "control_plane.core.http.middleware.EndOfLineMiddleware",
]

ROOT_URLCONF = "control_plane.urls"
ASGI_APPLICATION = "control_plane.asgi.application"
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True, "OPTIONS": {}}]
APPEND_SLASH = False


_NOTICE_A_LOST_SERVER: dict[str, Any] = {
    "connect_timeout": 3,
    # A standby, or an old primary after a failover, is not usable: its data may be old.
    "target_session_attrs": "read-write",
    # A machine that vanished closes no connection: milliseconds until sent bytes must be acknowledged, seconds of
    # silence.
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
}


def _database() -> dict[str, Any]:
    if not LORIKEET.database_url:
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": str(LORIKEET.sqlite_path),
            "OPTIONS": {
                # Seconds that a writer waits for another. With IMMEDIATE it waits at BEGIN, where waiting is possible,
                # instead of failing later when a read lock cannot be upgraded.
                "timeout": 20,
                "transaction_mode": "IMMEDIATE",
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
            },
        }
    database = parse_database_url(LORIKEET.database_url)
    # Options in the URL after "?" take precedence.
    options = database["OPTIONS"] = {**_NOTICE_A_LOST_SERVER, **database.get("OPTIONS", {})}
    if LORIKEET.database_pool:
        # Under ASGI each request runs on another thread, so connections are kept in a pool and not by thread.
        options["pool"] = {"min_size": 1, "max_size": LORIKEET.database_pool}
    return database


DATABASES = {"default": _database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_USER_MODEL = "accounts.User"
PASSWORD_HASHERS = ["control_plane.identity.accounts.hashing.BoundedArgon2Hasher"]
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

PASSWORD_RESET_TIMEOUT = 3600

SESSION_ENGINE = "control_plane.identity.accounts.sessions"
SESSION_COOKIE_NAME = "lorikeet_session"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = LORIKEET.secure_cookies
CSRF_COOKIE_NAME = "lorikeet_csrf"
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SECURE = LORIKEET.secure_cookies
CSRF_FAILURE_VIEW = "control_plane.core.http.errors.csrf_failure"
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
# Redirect only behind a trusted proxy, which reports the scheme; without one a redirect would loop.
SECURE_SSL_REDIRECT = LORIKEET.secure_cookies and LORIKEET.trust_proxy
SECURE_REDIRECT_EXEMPT = [r"^livez$", r"^readyz(/inference)?$", r"^metrics$", r"^health$", r"^ping$"]
# Other names of the same domain belong to others: no HSTS for subdomains, no preload.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
SECURE_HSTS_SECONDS = 31_536_000 if LORIKEET.secure_cookies else 0
if LORIKEET.trust_proxy:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")


def _mail() -> dict[str, Any]:
    """Return Django's mail settings. `smtp://user:password@host:587` uses STARTTLS, `smtps://` TLS from the start.

    Without a URL mails are written as files in the data folder.
    """
    if not LORIKEET.mail_url:
        return {"EMAIL_BACKEND": "control_plane.identity.accounts.mail.FolderBackend"}
    url = urlsplit(LORIKEET.mail_url)
    if url.scheme not in ("smtp", "smtps") or not url.hostname:
        raise SettingsError("LORIKEET_MAIL_URL must look like smtp://user:password@mail.example.org:587 (or smtps://).")
    return {
        "EMAIL_HOST": url.hostname,
        "EMAIL_PORT": url.port or (465 if url.scheme == "smtps" else 587),
        "EMAIL_HOST_USER": unquote(url.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(url.password or ""),
        "EMAIL_USE_SSL": url.scheme == "smtps",
        # A server on this machine is reached without TLS.
        "EMAIL_USE_TLS": url.scheme == "smtp" and url.hostname not in ("localhost", "127.0.0.1", "::1"),
    }


globals().update(_mail())
EMAIL_TIMEOUT = 15
DEFAULT_FROM_EMAIL = LORIKEET.mail_from

USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-us"

STATIC_URL = "/static/"
STATIC_ROOT = str(LORIKEET.var_dir / "static")
WHITENOISE_USE_FINDERS = True
if LORIKEET.console_dir.is_dir():
    WHITENOISE_ROOT = str(LORIKEET.console_dir)

# Uploads go straight to the artifact file system, so that accepting one is a rename and memory stays flat.
FILE_UPLOAD_HANDLERS = ["control_plane.adapters.uploads.spool.SpoolToStoreHandler"]
FILE_UPLOAD_PERMISSIONS = 0o600
DATA_UPLOAD_MAX_NUMBER_FILES = LORIKEET.upload_max_files
# Bytes of a body in memory, which the gateway has counted, and of the fields of an upload's form.
DATA_UPLOAD_MAX_MEMORY_SIZE = LORIKEET.request_max_bytes

CHANNEL_LAYERS: dict[str, dict[str, Any]] = {
    "default": {
        "BACKEND": "control_plane.console.live.channel_layer.SurvivingChannelLayer",
        "CONFIG": {"hosts": [{"address": LORIKEET.redis_url, **redis_client.channel_options(LORIKEET.redis_url)}]},
    }
    if LORIKEET.redis_url
    else {"BACKEND": "channels.layers.InMemoryChannelLayer"}
}

CACHES: dict[str, dict[str, Any]] = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": LORIKEET.redis_url,
        "OPTIONS": redis_client.options(LORIKEET.redis_url, asynchronous=False),
    }
    if LORIKEET.redis_url
    # The default of 300 entries would let strangers push out tickets and used states.
    else {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "OPTIONS": {"MAX_ENTRIES": 100_000}}
}

CELERY_BROKER_URL = LORIKEET.redis_url or "memory://localhost/"
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# Workers wait for Redis without a limit.
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
# Retry also after an error answer: its memory is full, or it became a replica.
CELERY_BROKER_CHANNEL_ERROR_RETRY = True
# A request that queues a task after a write must not wait here; `deferred.py` retries.
CELERY_TASK_PUBLISH_RETRY = False
CELERY_TASK_QUEUES = [Queue(queue.name) for queue in queues.QUEUES]  # type: ignore[no-untyped-call]
CELERY_TASK_ROUTES = queues.ROUTES
CELERY_TASK_DEFAULT_QUEUE = queues.DEFAULT
# A queue without a consumer would swallow tasks.
CELERY_TASK_CREATE_MISSING_QUEUES = False
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# Else a worker that loses its connection twice in a moment can be left taking no task at all.
CELERY_WORKER_ENABLE_PREFETCH_COUNT_REDUCTION = False
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULER = "control_plane.core.jobs.beat:MonotonicScheduler"
# No results are stored, so nothing has to clean them up.
CELERY_RESULT_EXPIRES = None
CELERY_BEAT_SCHEDULE: dict[str, dict[str, Any]] = {
    "tend-uploads": {"task": "uploads.tend", "schedule": 30.0, "options": {"expires": 30}},
    # Work enqueues its slots itself; these are for work whose slot was lost, or which had to wait.
    "poll-follows": {"task": "imports.poll_follows", "schedule": 30.0, "options": {"expires": 30}},
    "validate": {"task": "uploads.validate_next", "schedule": 3.0, "options": {"expires": 3}},
    "stage": {"task": "placements.stage_next", "schedule": 3.0, "options": {"expires": 3}},
    "deliver": {"task": "webhooks.deliver_next", "schedule": 3.0, "options": {"expires": 3}},
    "write-exports": {"task": "reports.write_next", "schedule": 3.0, "options": {"expires": 3}},
    "tend-evaluations": {"task": "evaluations.tend", "schedule": 3.0, "options": {"expires": 3}},
    "judge-canaries": {"task": "canaries.judge", "schedule": 15.0, "options": {"expires": 15}},
    "collect-content": {"task": "artifacts.collect", "schedule": 3600.0, "options": {"expires": 3600}},
    "reconcile-fleet": {"task": "placements.reconcile", "schedule": 30.0, "options": {"expires": 30}},
    "place-by-demand": {"task": "placements.place_by_demand", "schedule": 60.0, "options": {"expires": 60}},
    "recover-usage": {"task": "usage.recover", "schedule": 15.0, "options": {"expires": 15}},
    "aggregate-usage": {"task": "usage.aggregate", "schedule": 5.0, "options": {"expires": 15}},
    "measure-storage": {"task": "usage.measure_storage", "schedule": 600.0, "options": {"expires": 600}},
    "reconcile-quotas": {"task": "quotas.reconcile", "schedule": 60.0, "options": {"expires": 60}},
    "tend-exports": {"task": "reports.tend_exports", "schedule": 300.0, "options": {"expires": 300}},
    "clear-sessions": {"task": "accounts.clear_sessions", "schedule": 86_400.0},
    "forget-conversations": {"task": "conversations.forget", "schedule": 3600.0, "options": {"expires": 3600}},
    "forget-batches": {"task": "batches.forget", "schedule": 3600.0, "options": {"expires": 3600}},
    "forget-transcripts": {"task": "transcripts.forget", "schedule": 3600.0, "options": {"expires": 3600}},
    "forget-refusals": {"task": "refusals.forget", "schedule": 86_400.0},
    "forget-abandoned": {"task": "usage.forget_abandoned", "schedule": 86_400.0},
    "forget-series": {"task": "usage.forget_series", "schedule": 3600.0, "options": {"expires": 3600}},
    "forget-uploads": {"task": "uploads.forget", "schedule": 86_400.0},
    "forget-invitations": {"task": "members.forget_invitations", "schedule": 86_400.0},
    "forget-join-tokens": {"task": "joining.forget_tokens", "schedule": 86_400.0},
    "forget-hours": {"task": "usage.forget_hours", "schedule": 86_400.0},
    "archive-ledger": {"task": "usage.archive_ledger", "schedule": 3600.0, "options": {"expires": 3600}},
    "archive-audit": {"task": "archives.archive_audit", "schedule": 3600.0, "options": {"expires": 3600}},
    "clear-deleted": {"task": "administration.clear_deleted", "schedule": 300.0, "options": {"expires": 300}},
    "forget-webhooks": {"task": "webhooks.forget", "schedule": 86_400.0},
}
CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, Any] = (
    redis_client.broker_options(LORIKEET.redis_url) if LORIKEET.redis_url else {"polling_interval": 0.05}
)

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "control_plane.identity.keys.auth.ApiKeyAuthentication",
        "control_plane.identity.accounts.auth.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["control_plane.core.http.parsers.StrictJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "control_plane.core.http.schema.ApiSchema",
    "EXCEPTION_HANDLER": "control_plane.core.http.errors.exception_handler",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
    # REMOTE_ADDR is the client's address already: http/edge.py.
    "NUM_PROXIES": 0,
}

SPECTACULAR_SETTINGS = {
    "TITLE": "Lorikeet",
    "DESCRIPTION": "Serve thousands of LoRA adapters of one base model, for many tenants, on your own GPUs.",
    "VERSION": release(),
    "SERVE_INCLUDE_SCHEMA": False,
    "COMPONENT_SPLIT_REQUEST": True,
    "SCHEMA_PATH_PREFIX": "/api",
    # The names of components that are enumerations.
    "ENUM_NAME_OVERRIDES": {
        "AgreementOutcome": "control_plane.adapters.registry.models.AgreementOutcome",
        "AdapterTier": "control_plane.fleet.hosts.api.serializers.TIERS",
        "PageKind": "control_plane.fleet.hosts.api.serializers.PAGE_KINDS",
        "BaseModelState": "control_plane.fleet.base_models.api.queries.STATES",
        "QuarantineCode": "control_plane.fleet.hosts.api.serializers.QUARANTINE_CODES",
        "AdapterPlace": "control_plane.fleet.hosts.api.serializers.PLACES",
        "LoadStep": "control_plane.fleet.hosts.host_status.LOADS",
        "RestartPhase": "control_plane.fleet.hosts.api.serializers.RESTART_PHASES",
        "StatementLineKind": "control_plane.billing.reports.serializers.LINE_KINDS",
        "BatchEndpoint": "control_plane.gateway.batches.serializers.ADDRESSES",
        "EvaluationMetric": "control_plane.adapters.registry.models.EvaluationMetric",
        "EvaluationState": "control_plane.adapters.evaluations.models.EvaluationState",
        "BatchState": "control_plane.gateway.batches.models.BatchState",
        "FilePurpose": "control_plane.gateway.batches.models.Purpose",
        "ActorKind": "control_plane.identity.access.actor.ActorKind",
        "AdapterStatus": "control_plane.adapters.registry.queries.AdapterStatus",
        "Cadence": "control_plane.billing.reports.models.Cadence",
        "ExportState": "control_plane.billing.reports.models.ExportState",
        "Grain": "control_plane.billing.reports.models.Grain",
        "DeliveryState": "control_plane.console.webhooks.models.DeliveryState",
        "EventType": "control_plane.console.webhooks.models.EventType",
        "Capability": "control_plane.identity.tenants.roles.Capability",
        "ApiEndpoint": "control_plane.billing.usage.models.ApiEndpoint",
        "HostService": "control_plane.fleet.hosts.models.HostService",
        "HostState": "control_plane.fleet.hosts.models.HostState",
        "KeyScope": "control_plane.identity.keys.serializers.SCOPES",
        "ModelKind": "control_plane.adapters.registry.serializers.MODEL_KINDS",
        "Outcome": "control_plane.billing.usage.models.Outcome",
        "StagingPhase": "control_plane.fleet.hosts.models.StagingPhase",
        "Role": "control_plane.identity.tenants.roles.Role",
        "StagingWait": "control_plane.fleet.placements.queries.WAITS_FOR",
        "TenantState": "control_plane.console.administration.queries.STATES",
        "UploadState": "control_plane.adapters.uploads.models.UploadState",
        "VersionState": "control_plane.adapters.registry.models.VersionState",
    },
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "control_plane.gateway.openai.schema.add_inference",
        "control_plane.core.http.schema.complete",
    ],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
}

LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {
        "request_id": {"()": "control_plane.core.http.logs.RequestIdFilter"},
        "unexpected": {"()": "control_plane.core.http.logs.UnexpectedErrors"},
    },
    "formatters": {
        "json": {"()": "control_plane.core.http.logs.JsonFormatter"},
        "plain": {
            "()": "control_plane.core.http.logs.PlainFormatter",
            "fmt": "%(asctime)s %(levelname)s %(name)s [%(request_id)s] %(message)s",
        },
    },
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "filters": ["request_id"],
            "formatter": "json" if LORIKEET.log_json else "plain",
        }
    },
    "root": {"handlers": ["stderr"], "level": LORIKEET.log_level},
    "loggers": {
        "celery": {"level": "WARNING"},
        "celery.worker.control": {"level": "ERROR"},  # logs a warning for each worker that the process itself stops
        "kombu": {"level": "WARNING"},
        "django.request": {"level": "ERROR", "filters": ["unexpected"]},
        # Logs every URL that is called, and a webhook's may contain a password.
        "httpx": {"level": "WARNING"},
        # Logs a warning for each attempt to connect; the breaker logs an outage once.
        "psycopg.pool": {"level": "ERROR"},
    },
}
