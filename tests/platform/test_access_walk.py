"""Every address says who may call it, and keeps to it; every address that changes something leaves an audit row."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.utils import timezone
from lorikeet_testing import peft_files
from lorikeet_testing.addresses import TENANT_PREFIX, Address, every_address, methods_of
from lorikeet_testing.audit_watch import AUDIT_LOG, UNAUDITED
from lorikeet_testing.authenticator import PAGE, RP_ID, SoftwarePasskey
from lorikeet_testing.clients import call, keyed
from lorikeet_testing.in_one_world import *  # noqa: F403
from rest_framework.test import APIClient

from control_plane.adapters.imports.models import HubToken
from control_plane.adapters.registry.models import Adapter, AdapterVersion, Alias, VersionState
from control_plane.adapters.uploads.models import Upload, UploadState
from control_plane.billing.limits.models import LimitSet
from control_plane.billing.prices.actions import PriceList, publish_prices
from control_plane.core.http.access import Access
from control_plane.fleet.base_models.actions import approve_base_model
from control_plane.fleet.base_models.api import views as base_model_views
from control_plane.fleet.base_models.models import BaseModel
from control_plane.fleet.hosts.models import EngineHost, StagingPhase
from control_plane.fleet.joining.join_tokens import create_token
from control_plane.fleet.placements import prefixes
from control_plane.fleet.placements.models import Placement
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.accounts.actions import set_operator
from control_plane.identity.accounts.models import User
from control_plane.identity.accounts.passwords import reset_token
from control_plane.identity.members.invitations import invitation_link
from control_plane.identity.second_factor import actions as second_factor
from control_plane.identity.second_factor import passkeys, totp
from control_plane.identity.second_factor.models import AuthenticatorApp
from control_plane.identity.tenants.models import Invitation, Tenant
from control_plane.identity.tenants.roles import Capability, Role
from lora_engine.server.identity import certificate_request, new_key
from lora_engine.wire import engine_pb2 as pb

pytestmark = pytest.mark.django_db
ADDRESSES = every_address()
PASSWORD = "correct horse battery"

# Open to anybody. Add to it only what takes a secret in its body, or tells none.
PUBLIC = {
    "health", "ping", "version", "livez", "readyz", "readyz/inference", "metrics", "api/session",
    "api/session/second-factor", "api/session/passkey",
    "api/password/forgot", "api/password/reset",
    "api/invitations/read",
    "api/hosts/join",
    "api/invitations/accept", "api/oidc/start", "api/oidc/callback", "api/schema", "api/docs", "v1/^(?s:.*)$",
    # These only say which address to use.
    "chat/completions", "completions", "embeddings", "responses", "messages", "openai/<path:rest>",
}  # fmt: skip


@pytest.mark.parametrize("address", ADDRESSES, ids=lambda address: address.route)
def test_says_who_may_call_it(address: Address) -> None:
    access = getattr(address.declared, "access", None)
    assert access in set(Access), (
        f"{address.route}: its view does not say who may call it. Build it on TenantView, OperatorView, PersonView or "
        "PublicView, or mark a function with control_plane.core.http.access."
    )
    assert (access == Access.PUBLIC) == (address.route in PUBLIC), f"{address.route} is {access}: compare with PUBLIC"
    assert (access == Access.TENANT) == address.route.startswith(TENANT_PREFIX)
    if access in (Access.TENANT, Access.OPERATOR):
        for method in address.methods:
            assert address.declared.needs.get(method.upper()) in set(Capability), (
                f"{method.upper()} {address.route}: name its capability in `needs`"
            )


@pytest.mark.parametrize(("address", "method"), methods_of(Access.SESSION))
def test_only_with_a_session(acme: Any, furnished: dict[str, Any], address: Address, method: str) -> None:
    path = address.path(furnished)
    for stranger in (APIClient(), keyed(acme.key()[1])):
        assert call(stranger, method, path).status_code == 401
    for role in Role:
        assert call(acme.client(role), method, path).status_code not in (401, 403)


@pytest.mark.parametrize(("address", "method"), methods_of(Access.OPERATOR))
def test_only_operators(acme: Any, furnished: dict[str, Any], address: Address, method: str) -> None:
    path = address.path({**furnished, "tenant": "acme", "slug": "acme"})
    assert call(APIClient(), method, path).status_code == 401
    for stranger in (keyed(acme.key()[1]), *(acme.client(role) for role in Role)):
        refused = call(stranger, method, path)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "operator_only")
    operator = User.objects.get(email="viewer@acme.example")
    set_operator(actor=SYSTEM, user=operator, operator=True)
    assert call(acme.client(Role.VIEWER), method, path).status_code not in (401, 403, 404)


# -- what changes something -----------------------------------------------------------------------------------------

Sent = dict[str, Any]
World = dict[str, Any]


def day_after_tomorrow() -> str:
    return (timezone.now() + timedelta(days=2)).date().isoformat()


def token(world: World) -> str:
    return invitation_link(Invitation.objects.get(pk=world["invitation_id"])).partition("#")[2]


def own_reset_token(world: World) -> str:
    return reset_token(User.objects.get(email="owner@acme.example"))


def adapter_files() -> list[SimpleUploadedFile]:
    return [SimpleUploadedFile(name, content) for name, content in peft_files.adapter_files(seed=9).items()]


def with_hub_token(world: World) -> Sent:
    HubToken.objects.create(tenant=Tenant.objects.get(slug="acme"), sealed="sealed")
    return {}


def with_promotion_rule(world: World) -> Sent:
    Adapter.objects.filter(name="support").update(promotion_rule={"set": "sums", "set_id": "", "key": ""})
    return {}


def with_room_for_pins(world: World) -> Sent:
    version = Alias.objects.get(adapter__name="support", name="live").version
    host = EngineHost.objects.create(name="pinning", address="h:1", boot_id="b")
    Placement.objects.create(version=version, host=host, phase=StagingPhase.READY, boot_id="b")
    LimitSet.objects.update_or_create(tenant=version.tenant, api_key=None, defaults={"pinned_bytes": 2**40})
    return {}


def pinned(world: World) -> Sent:
    Adapter.objects.filter(name="support").update(pinned_at=timezone.now())
    return {}


def unconfirmed(world: World) -> Sent:
    AdapterVersion.objects.update(named_base="another-model")
    return {}


def flagged(world: World) -> Sent:
    AdapterVersion.objects.update(overflowed_at=timezone.now())
    return {}


def unused(world: World) -> Sent:
    Alias.objects.all().delete()
    return {}


def archived(world: World) -> Sent:
    AdapterVersion.objects.filter(number=1).update(state=VersionState.ARCHIVED)
    return {}


def suspended(world: World) -> Sent:
    Tenant.objects.filter(slug="acme").update(suspended_at=timezone.now())
    return {}


def undecided_upload(world: World) -> Sent:
    Upload.objects.filter(pk=world["upload_id"]).update(state=UploadState.RECEIVED, version=None)
    return {}


def joined_host(world: World) -> Sent:
    EngineHost.objects.filter(name=world["host_name"]).update(credential="c")
    return {}


def owner_of_acme() -> User:
    return User.objects.get(email="owner@acme.example")


def app_of_the_owner() -> str:
    """Put an authenticator app in use. Returns a code of it."""
    owner = owner_of_acme()
    secret = second_factor.begin_app(user=owner).secret
    AuthenticatorApp.objects.update(confirmed_at=timezone.now())
    User.objects.filter(pk=owner.pk).update(second_factor_since=timezone.now())
    return totp.code_at(secret, time.time())


def code_of_the_owner(world: World) -> Sent:
    return {"code": app_of_the_owner()}


def code_of_a_new_app(world: World) -> Sent:
    return {"code": totp.code_at(second_factor.begin_app(user=owner_of_acme()).secret, time.time())}


def with_second_factor(world: World) -> Sent:
    app_of_the_owner()
    return {}


# As of `navigator.credentials.create`.
OPTIONS = {"challenge": "AAAA", "user": {"id": "AAAA"}}
ANOTHER_BASE = pb.EngineDescription(base_model="another", base_digest="sha256:another")


def with_prices_of_a_base(world: World) -> Sent:
    base = BaseModel.objects.get()
    amounts = PriceList("USD", 1, 1, 1, 0)
    publish_prices(actor=SYSTEM, prices=amounts, effective_on=date.fromisoformat(day_after_tomorrow()), base=base)
    return {"base_model_digest": base.digest, "effective_on": day_after_tomorrow()}


def a_budget(world: World) -> Sent:
    prices = PriceList("USD", 1, 1, 1, 0)
    publish_prices(actor=SYSTEM, prices=prices, effective_on=date.fromisoformat(day_after_tomorrow()))
    return {"day": {"amount_micros": 5}}


def beside_another_base(world: World) -> Sent:
    approve_base_model(actor=SYSTEM, description=ANOTHER_BASE)
    return {}


_HOOK = {"url": "https://hooks.example.org/other", "description": "", "events": [], "active": True}
_T = TENANT_PREFIX
# What to send to every address that changes something, so that it does.
BODIES: dict[str, Callable[[World], Sent]] = {
    "POST api/session": lambda world: {"email": "owner@acme.example", "password": PASSWORD},
    "DELETE api/session": lambda world: {},
    "DELETE api/sessions": lambda world: {},
    "DELETE api/sessions/<uuid:session_id>": lambda world: {},
    "POST api/session/second-factor": code_of_the_owner,
    "POST api/session/confirmation": lambda world: {"password": PASSWORD},
    "PUT api/profile": lambda world: {"name": "Ada"},
    "POST api/second-factors/app": lambda world: {},
    "DELETE api/second-factors/app": with_second_factor,
    "POST api/second-factors/app/confirm": code_of_a_new_app,
    "POST api/second-factors/passkeys": lambda world: {
        "name": "Laptop",
        "credential": SoftwarePasskey().create(OPTIONS),
    },
    "DELETE api/second-factors/passkeys/<uuid:passkey_id>": lambda world: {},
    "POST api/second-factors/recovery-codes": with_second_factor,
    "POST api/password": lambda world: {"current_password": PASSWORD, "password": "a wholly new pass phrase"},
    "POST api/password/reset": lambda world: {
        "token": own_reset_token(world),
        "password": "a wholly new pass phrase",
    },
    "POST api/invitations/accept": lambda world: {"token": token(world), "password": "a wholly new pass phrase"},
    f"DELETE {_T}adapters/<str:name>": lambda world: {},
    f"POST {_T}imports": lambda world: {"name": "imported", "source": "hub:org/name"},
    f"PUT {_T}hub-token": lambda world: {"token": "hf_secret"},
    f"DELETE {_T}hub-token": with_hub_token,
    f"POST {_T}follows": lambda world: {"name": "followed", "source": "hub:org/name@main"},
    f"DELETE {_T}follows/<uuid:follow_id>": lambda world: {},
    f"PUT {_T}hub-models": lambda world: {"enabled": True},
    f"POST {_T}bucket-credentials": lambda world: {
        "bucket": "trainings",
        "access_key_id": "A",
        "secret_access_key": "s",
    },
    f"DELETE {_T}bucket-credentials/<str:bucket>": lambda world: {},
    f"POST {_T}adapters/<str:name>/versions/<int:number>/promote": lambda world: {},
    f"POST {_T}adapters/<str:name>/versions/<int:number>/confirm-base": unconfirmed,
    f"POST {_T}adapters/<str:name>/versions/<int:number>/confirm-effect": flagged,
    f"POST {_T}adapters/<str:name>/versions/<int:number>/restage": lambda world: {},
    f"PUT {_T}adapters/<str:name>/versions/<int:number>/dtype": lambda world: {"adapter_dtype": "bf16"},
    f"POST {_T}adapters/<str:name>/versions/<int:number>/archive": unused,
    f"POST {_T}adapters/<str:name>/versions/<int:number>/restore": archived,
    f"DELETE {_T}adapters/<str:name>/versions/<int:number>": unused,
    f"DELETE {_T}archived-adapters/<uuid:adapter_id>": lambda world: {},
    f"POST {_T}archived-adapters/<uuid:adapter_id>/restore": lambda world: {},
    f"PUT {_T}adapters/<str:name>/pin": with_room_for_pins,
    f"DELETE {_T}adapters/<str:name>/pin": pinned,
    f"POST {_T}pinned-prefixes": lambda world: {
        **with_room_for_pins(world),
        "name": "new",
        "model": "support",
        "prompt": "Once upon a time",
    },
    f"DELETE {_T}pinned-prefixes/<str:prefix_name>": lambda world: {},
    f"PUT {_T}adapters/<str:name>/aliases/<str:alias>": lambda world: {"version": 1},
    f"DELETE {_T}adapters/<str:name>/aliases/<str:alias>": lambda world: {},
    f"PUT {_T}adapters/<str:name>/aliases/<str:alias>/canary": lambda world: {"version": 1, "percent": 20},
    f"DELETE {_T}adapters/<str:name>/aliases/<str:alias>/canary": lambda world: {},
    f"POST {_T}adapters/<str:name>/aliases/<str:alias>/rollback": lambda world: {},
    f"POST {_T}uploads": lambda world: {"name": "other", "files": adapter_files()},
    f"DELETE {_T}uploads/<uuid:upload_id>": undecided_upload,
    f"POST {_T}keys": lambda world: {"name": "other"},
    f"PATCH {_T}keys/<uuid:key_id>": lambda world: {"name": "other"},
    f"DELETE {_T}keys/<uuid:key_id>": lambda world: {},
    f"POST {_T}keys/<uuid:key_id>/rotate": lambda world: {},
    f"PUT {_T}keys/<uuid:key_id>/limits": lambda world: {},
    f"PUT {_T}keys/<uuid:key_id>/budgets": a_budget,
    f"PUT {_T}budgets": a_budget,
    f"POST {_T}batches": lambda world: {
        "endpoint": "/v1/chat/completions",
        "key": str(world["key_id"]),
        "file": SimpleUploadedFile("r.jsonl", b"{}"),
    },
    f"POST {_T}batches/<str:batch_id>/cancel": lambda world: {},
    f"POST {_T}evaluation-sets": lambda world: {
        "name": "new",
        "metric": "exact",
        "file": SimpleUploadedFile("s.jsonl", b'{"prompt": "a", "expected": "b"}'),
    },
    f"DELETE {_T}evaluation-sets/<str:set_name>": lambda world: {},
    f"POST {_T}evaluations": lambda world: {
        "set": "sums",
        "adapter": "support",
        "version": 1,
        "key": str(world["key_id"]),
    },
    f"DELETE {_T}evaluations/<uuid:evaluation_id>": lambda world: {},
    f"PUT {_T}adapters/<str:name>/promotion-rule": lambda world: {"set": "sums", "key": str(world["key_id"])},
    f"DELETE {_T}adapters/<str:name>/promotion-rule": with_promotion_rule,
    f"DELETE {_T}files/<str:file_id>": lambda world: {},
    f"PUT {_T}api-settings": lambda world: {"refuse_unknown_fields": False, "never_store_responses": False},
    f"PUT {_T}security": lambda world: {**with_second_factor(world), "second_factor_required": True},
    f"PUT {_T}origins": lambda world: {"origins": ["https://app.example.org"]},
    f"PUT {_T}recording": lambda world: {"enabled": True, "days": 8},
    f"DELETE {_T}transcripts": lambda world: {},
    f"PUT {_T}slo": lambda world: {"first_token_ms": 300},
    f"POST {_T}exports": lambda world: {"days": 3, "grain": "day"},
    f"POST {_T}export-schedules": lambda world: {"cadence": "week"},
    f"DELETE {_T}export-schedules/<uuid:schedule_id>": lambda world: {},
    f"PATCH {_T}members/<uuid:user_id>": lambda world: {"role": "developer"},
    f"DELETE {_T}members/<uuid:user_id>": lambda world: {},
    f"DELETE {_T}membership": lambda world: {},
    f"POST {_T}invitations": lambda world: {"email": "else@acme.example", "role": "viewer"},
    f"DELETE {_T}invitations/<uuid:invitation_id>": lambda world: {},
    f"POST {_T}webhooks": lambda world: _HOOK,
    f"PUT {_T}webhooks/<uuid:webhook_id>": lambda world: _HOOK,
    f"DELETE {_T}webhooks/<uuid:webhook_id>": lambda world: {},
    f"POST {_T}webhooks/<uuid:webhook_id>/rotate": lambda world: {},
    f"POST {_T}webhooks/<uuid:webhook_id>/test": lambda world: {},
    f"POST {_T}webhooks/<uuid:webhook_id>/deliveries/<uuid:delivery_id>/replay": lambda world: {},
    "PUT api/operator/base-model": lambda world: {"host": "local"},
    "POST api/operator/base-models": lambda world: {"host": "local"},
    "PATCH api/operator/base-models/<str:digest>": lambda world: {"name": "renamed"},
    "DELETE api/operator/base-models/<str:digest>": beside_another_base,
    "POST api/operator/prices": lambda world: {
        "effective_on": day_after_tomorrow(),
        "currency": "USD",
        "input_per_million": 1,
        "cached_input_per_million": 1,
        "output_per_million": 1,
        "storage_per_gb_month": 1,
    },
    "POST api/operator/prices/end": with_prices_of_a_base,
    "PUT api/operator/tenants/<slug:tenant>/limits": lambda world: {},
    "PUT api/operator/tenants/<slug:tenant>/budgets": a_budget,
    "PUT api/operator/tenants/<slug:tenant>/weight": lambda world: {"weight": 2},
    "POST api/operator/tenants": lambda world: {"slug": "new", "name": "New", "owner": "owner@new.example"},
    "PATCH api/operator/tenants/<slug:tenant>": lambda world: {"name": "Renamed"},
    "DELETE api/operator/tenants/<slug:tenant>": lambda world: {},
    "PUT api/operator/tenants/<slug:tenant>/suspension": lambda world: {"reason": "unpaid"},
    "DELETE api/operator/tenants/<slug:tenant>/suspension": suspended,
    "DELETE api/operator/tenants/<slug:tenant>/members/<uuid:user_id>/second-factor": lambda world: {},
    "DELETE api/operator/tenants/<slug:tenant>/members/<uuid:user_id>/identities/<int:identity_id>": lambda world: {},
    "POST api/operator/tenants/<slug:tenant>/invitations": lambda world: {"email": "x@acme.example", "role": "owner"},
    "PUT api/operator/tenants/<slug:tenant>/objectives": lambda world: {"first_token_ms": 300},
    "PUT api/operator/hosts/<str:host_name>/service": lambda world: {"service": "cordoned"},
    "POST api/operator/hosts/<str:host_name>/restart": lambda world: {"wait_s": 0},
    "DELETE api/operator/hosts/<str:host_name>": joined_host,
    "DELETE api/operator/hosts/<str:host_name>/credential": joined_host,
    "POST api/operator/join-tokens": lambda world: {},
    "DELETE api/operator/join-tokens/<uuid:token_id>": lambda world: {},
    "POST api/hosts/join": lambda world: {
        "token": create_token(actor=SYSTEM, host_name="", lifetime=timedelta(hours=1))[1],
        "name": "gpu9",
        "address": "gpu9:7000",
        "certificate_request": certificate_request(new_key()).decode(),
    },
    "POST api/operator/staging/<uuid:placement_id>/retry": lambda world: {},
}
# POST, but nothing is kept in the database.
CHANGES_NOTHING = {
    "POST api/password/forgot": "queues a mail, if there is such an account",
    "POST api/invitations/read": "reads; the token travels in the body",
    "POST api/session/passkey": "a challenge in a cookie",
    "POST api/second-factors/passkeys/options": "a challenge in a cookie",
    f"POST {_T}socket-ticket": "a ticket in the cache, good for half a minute",
}
CHANGES = [
    (f"{method.upper()} {address.route}", address)
    for address in ADDRESSES
    if getattr(address.declared, "access", None) not in (None, Access.KEY) and isinstance(address.declared, type)
    for method in address.methods
    if method != "get"
]


@pytest.mark.parametrize(("name", "address"), CHANGES, ids=[name for name, _ in CHANGES])
def test_a_change_leaves_a_row(
    acme: Any, furnished: World, committing: Any, monkeypatch: pytest.MonkeyPatch, name: str, address: Address
) -> None:
    monkeypatch.setattr(base_model_views, "describe_host", lambda _name: ANOTHER_BASE)
    monkeypatch.setattr(prefixes, "measured", lambda *_: 64)
    if name in CHANGES_NOTHING:
        return
    assert name in BODIES, f"{name}: say in BODIES what to send, so that it is seen to write its audit row"
    changed: set[str] = set()

    def watch(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        verb, *words = sql.replace('"', "").split()
        if verb in ("INSERT", "UPDATE", "DELETE"):
            changed.add(words[0] if verb == "UPDATE" else words[1])
        return execute(sql, params, many, context)

    set_operator(actor=SYSTEM, user=acme.users[Role.OWNER], operator=True)
    body, path = BODIES[name](furnished), address.path({**furnished, "tenant": "acme"})
    if name == "DELETE api/operator/tenants/<slug:tenant>":
        path += "?confirm=acme"
    signed_out = address.declared.access == Access.PUBLIC and name != "DELETE api/session"
    client = APIClient() if signed_out else acme.client(Role.ADMIN if name.endswith("/membership") else Role.OWNER)
    if "api/session/second-factor" in name:
        login = {"email": "owner@acme.example", "password": PASSWORD}
        assert client.post("/api/session", login, format="json").status_code == 200
    if "api/second-factors/passkeys" in name:
        rp = passkeys.RelyingParty(RP_ID, frozenset({PAGE}))
        monkeypatch.setattr(passkeys, "relying_party", lambda _request: rp)
        challenge = passkeys.Challenge("AAAA", str(owner_of_acme().pk), "register")
        monkeypatch.setattr(passkeys, "take_challenge", lambda *_: challenge)
    form = "multipart" if {"file", "files"} & body.keys() else "json"
    with committing(), connection.execute_wrapper(watch):
        answer = getattr(client, name.split()[0].lower())(path, body, format=form)
    assert answer.status_code < 400, answer.content
    assert AUDIT_LOG in changed, f"{name} changes {sorted(changed - set(UNAUDITED))} and leaves no audit row"
