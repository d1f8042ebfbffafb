"""Settings from the environment."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from pydantic import ValidationError

from control_plane.core.config import Settings, SettingsError, parse_engine_hosts, read_or_create_secret
from control_plane.core.postgres.url import parse_database_url
from control_plane.core.secrets.keys import accepted


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("LORIKEET_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("LORIKEET_VAR_DIR", str(tmp_path))


def test_embedded_default(tmp_path: Path) -> None:
    settings = Settings()
    assert settings.is_embedded
    assert settings.artifacts == tmp_path / "artifacts"
    assert not settings.debug
    (value,) = accepted("secret-key", settings)
    assert len(value) > 40
    assert accepted("secret-key", Settings()) == (value,)
    assert stat.S_IMODE((tmp_path / "secret-key").stat().st_mode) == 0o600
    assert accepted("key-pepper", settings) not in ((), (value,))


def test_production(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LORIKEET_REDIS_URL", "redis://localhost")
    monkeypatch.setenv("LORIKEET_DATABASE_URL", "postgres://localhost/x")
    with pytest.raises((SettingsError, ValidationError), match="LORIKEET_SECRET_KEY"):
        Settings()
    monkeypatch.setenv("LORIKEET_SECRET_KEY", "s" * 50)
    settings = Settings()
    assert not settings.is_embedded
    assert settings.secret_key == "s" * 50


def test_engine_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LORIKEET_ENGINE_HOSTS", "local=unix:/run/e.sock, gpu1=127.0.0.1:7000,")
    assert Settings().engine_hosts == {"local": "unix:/run/e.sock", "gpu1": "127.0.0.1:7000"}
    with pytest.raises(SettingsError, match="name=address"):
        parse_engine_hosts("10.0.0.2:7000")


def test_one_secret_for_processes_that_start_together(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    first = read_or_create_secret(path)
    assert read_or_create_secret(path) == first
    assert [entry.name for entry in tmp_path.iterdir()] == ["secret"]


def test_a_database_url_may_name_several_servers() -> None:
    both = parse_database_url("postgres://u:p%40@10.0.0.1:5433,[::1],db.example.org/name?target_session_attrs=any")
    assert (both["HOST"], both["PORT"]) == ("10.0.0.1,::1,db.example.org", "5433,5432,5432")
    assert (both["USER"], both["PASSWORD"], both["NAME"]) == ("u", "p@", "name")
    assert both["OPTIONS"] == {"target_session_attrs": "any"}
    one = parse_database_url("postgres://u:p@10.0.0.1:5433/name")
    assert (one["HOST"], one["PORT"], one["ENGINE"]) == ("10.0.0.1", 5433, "control_plane.core.postgres")
