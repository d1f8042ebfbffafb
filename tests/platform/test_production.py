"""Settings of a production installation: Django's and our own deployment checks, headers, redirects, migrations."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.db import migrations
from django.db.migrations.loader import MigrationLoader
from django.db.models import NOT_PROVIDED
from lorikeet_testing.forked import run_forked
from lorikeet_testing.web import ROOT, SOURCE_ROOTS
from rest_framework.test import APIClient

PRODUCTION = {
    "LORIKEET_SECRET_KEY": "kDpZ3sVb81QeXo0uTn5rYw7LcHgJfA2iM9tRzKqUhBvNmSxEw1P7dLkYa9G",
    "LORIKEET_ALLOWED_HOSTS": "lorikeet.example.org",
    "LORIKEET_TRUSTED_ORIGINS": "https://lorikeet.example.org",
    "LORIKEET_SECURE_COOKIES": "true",
    "LORIKEET_TRUST_PROXY": "true",
    "LORIKEET_MAIL_URL": "smtp://user:password@mail.example.org:587",
}


def check(tmp_path: Path, **changed: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("LORIKEET_")}
    env |= {**PRODUCTION, "LORIKEET_VAR_DIR": str(tmp_path), **changed}
    env["PYTHONPATH"] = os.pathsep.join(str(ROOT / root) for root in SOURCE_ROOTS)
    command = ["control_plane", "check", "--deploy", "--fail-level", "WARNING"]
    return run_forked(command, env=env, folder=ROOT)


def test_nothing_to_complain_of(tmp_path: Path) -> None:
    done = check(tmp_path)
    assert done.returncode == 0, done.stderr


def test_what_is_complained_of(tmp_path: Path) -> None:
    done = check(
        tmp_path, LORIKEET_SECURE_COOKIES="false", LORIKEET_DEMO="1", LORIKEET_MAIL_URL="", LORIKEET_TRUSTED_ORIGINS=""
    )
    assert done.returncode != 0
    for code in ("security.W012", "security.W016", "lorikeet.W001", "lorikeet.W002", "lorikeet.W003"):
        assert code in done.stderr


@pytest.mark.django_db
def test_plain_http_is_sent_to_tls(settings: Any) -> None:
    settings.SECURE_SSL_REDIRECT = True
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    assert APIClient().get("/api/session").status_code == 301
    assert APIClient().get("/livez").status_code == 200
    assert APIClient().get("/api/session", headers={"X-Forwarded-Proto": "https"}).status_code == 200


@pytest.mark.django_db
def test_headers() -> None:
    answer = APIClient().get("/api/session")
    policy = answer["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]
    assert "unsafe-eval" not in policy
    assert "connect-src 'self';" in policy
    assert answer["X-Frame-Options"] == "DENY"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Referrer-Policy"] == "same-origin"


def test_migrations_can_run_while_the_version_before_serves() -> None:
    """Old code must be able to write rows and to read what it knows: nothing goes away, nothing new is demanded."""
    taken_away = (migrations.RemoveField, migrations.RenameField, migrations.DeleteModel, migrations.RenameModel)
    unsafe: list[str] = []
    for (app, name), migration in MigrationLoader(None).disk_migrations.items():
        if not type(migration).__module__.startswith("control_plane.") or migration.initial or name.startswith("0001"):
            continue
        for operation in migration.operations:
            what = f"{app}/{name}: {operation.describe()}"
            if isinstance(operation, taken_away):
                unsafe.append(f"{what}. Stop using it now, take it away in the release after next.")
            elif isinstance(operation, migrations.AddField):
                field = operation.field
                if not (field.null or field.many_to_many or field.db_default is not NOT_PROVIDED):
                    unsafe.append(f"{what}. Give it null=True or a db_default: old code inserts rows without it.")
    assert not unsafe, "\n".join(unsafe)
