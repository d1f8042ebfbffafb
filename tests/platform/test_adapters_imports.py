"""Imports from a server that speaks the Hub's protocol, and from addresses, whatever breaks on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.utils import timezone
from lorikeet_testing.hub_server import HubServer, commit_of, running_hub
from lorikeet_testing.peft_files import adapter_files, zip_of

from control_plane.adapters.imports import fetching
from control_plane.adapters.imports.models import HubToken
from control_plane.adapters.imports.sources import HubSource, parse_source
from control_plane.adapters.registry.models import AdapterVersion
from control_plane.adapters.uploads import validation_job
from control_plane.adapters.uploads.models import Upload, UploadState
from control_plane.core.http import egress
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.tenants.roles import Role

pytestmark = pytest.mark.django_db
FILES = {**adapter_files(), "README.md": b"# hello"}


@pytest.fixture
def hub(settings: Any) -> Iterator[HubServer]:
    with running_hub() as server:
        server.repositories["org/adapter"] = {"main": FILES, "v2": adapter_files(seed=1)}
        settings.LORIKEET = settings.LORIKEET.model_copy(update={"hub_url": server.url, "import_allow_private": True})
        yield server


@pytest.fixture
def bring(acme: Any, host: Any, queue: Any, committing: Any, in_process: None) -> Callable[..., Upload]:
    def run(source: str, name: str = "support") -> Upload:
        with committing():
            begun = acme.client().post(acme.path("imports"), {"name": name, "source": source}, format="json")
            assert begun.status_code == 202, begun.content
            validation_job.validate_next()
        assert "validate_next" in queue.names()
        return Upload.objects.select_related("version").get(pk=begun.json()["id"])

    return run


def again(upload: Upload) -> Upload:
    Upload.objects.filter(pk=upload.pk).update(claimed_until=timezone.now() - timedelta(seconds=1))
    validation_job.validate_next()
    return Upload.objects.select_related("version").get(pk=upload.pk)


def test_a_repository_at_its_commit(acme: Any, hub: HubServer, bring: Any, committing: Any) -> None:
    upload = bring("hub:org/adapter")
    assert upload.state == UploadState.ACCEPTED, upload.reason
    commit = commit_of(FILES)
    shown = acme.client().get(acme.path(f"uploads/{upload.pk}")).json()
    assert shown["imported_from"] == {"name": "hub:org/adapter", "revision": "main", "commit": commit}
    assert [file["name"] for file in shown["files"]] == ["adapter_config.json", "adapter_model.safetensors"]
    assert shown["report"]["notes"][0] == f"imported from hub:org/adapter at commit {commit}"
    assert all(commit in path for path, _ in hub.seen[1:]), "files come from the commit, not from the branch"
    assert AuditEvent.objects.get(action="upload.import").detail["source"] == "hub:org/adapter"
    assert bring("hub:org/adapter@v2").version.number == 2


def test_a_repositorys_chat_template_comes_too(hub: HubServer, bring: Any) -> None:
    """A commit that changes only that is another version."""
    template = b"{% for m in messages %}Q: {{ m.content }}{% endfor %}"
    own = {**FILES, "chat_template.jinja": template, "tokenizer_config.json": b"{}", "tokenizer.json": b"{}"}
    hub.repositories["org/adapter"]["own"] = own
    upload = bring("hub:org/adapter@own")
    assert [file["name"] for file in upload.files[2:]] == ["chat_template.jinja", "tokenizer_config.json"]
    assert upload.version.chat_template["source"] == template.decode()
    bare = bring("hub:org/adapter")
    assert (bare.version.number, bare.version.chat_template) == (2, None)
    assert bring("hub:org/adapter@own").reused_version


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("https://huggingface.co/Org/Name", "hub:Org/Name@main"),
        ("https://hf.co/org/name/", "hub:org/name@main"),
        ("https://huggingface.co/org/name/tree/v2/runs/checkpoint-5", "hub:org/name/runs/checkpoint-5@v2"),
        ("https://huggingface.co/org/name/tree/refs%2Fpr%2F1", "hub:org/name@refs/pr/1"),
        (f"https://huggingface.co/org/name/commit/{'0a' * 20}", f"hub:org/name@{'0a' * 20}"),
        ("https://huggingface.co/org/name/blob/main/adapter_config.json?x=1#L3", "hub:org/name@main"),
        ("https://huggingface.co/org/name/resolve/main/out/adapter_model.safetensors", "hub:org/name/out@main"),
    ],
)
def test_the_address_of_a_page_names_its_repository(page: str, shown: str) -> None:
    source = parse_source(page)
    assert isinstance(source, HubSource)
    assert f"{source.shown}@{source.revision}" == shown


def test_what_has_come_is_told_and_an_import_can_be_given_up(
    acme: Any, globex: Any, hub: HubServer, bring: Any, committing: Any
) -> None:
    with running_hub() as store:
        hub.store, store.cut_after = store, 1500
        upload = bring("hub:org/adapter")
    path = acme.path(f"uploads/{upload.pk}")
    config = len(FILES["adapter_config.json"])
    assert acme.client().get(path).json()["fetched_bytes"] == config + 1500
    assert globex.client().delete(globex.path(f"uploads/{upload.pk}")).status_code == 404
    assert acme.client(Role.VIEWER).delete(path).status_code == 403
    with committing():
        given_up = acme.client().delete(path)
    shown = given_up.json()
    assert (given_up.status_code, shown["state"], shown["fetched_bytes"]) == (200, "cancelled", None)
    assert shown["reason"]["code"] == "upload_cancelled"
    assert not Path(upload.folder).exists()
    assert acme.client().delete(path).json()["error"]["code"] == "upload_ended"
    assert again(upload).state == UploadState.CANCELLED
    assert AuditEvent.objects.get(action="upload.cancelled").actor_label == acme.users[Role.OWNER].email


@pytest.mark.parametrize("place", ["_require_room", "_drop_files_of_other_listing"])
def test_a_worker_whose_import_is_given_up_stops(
    acme: Any, hub: HubServer, bring: Any, committing: Any, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    """Before its commit is known, and when files are to be written. Then neither the disk nor the store has failed."""

    def give_up(*arguments: Any) -> Any:
        with committing():
            acme.client().delete(acme.path(f"uploads/{Upload.objects.get().pk}"))
        return original(*arguments)

    original = getattr(fetching, place)
    with pytest.MonkeyPatch.context() as meanwhile:
        meanwhile.setattr(fetching, place, give_up)
        assert bring("hub:org/adapter").state == UploadState.CANCELLED
    assert not AdapterVersion.objects.exists()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    assert bring("hub:org/adapter").state == UploadState.ACCEPTED


def test_the_same_files_uploaded_are_the_same_version(hub: HubServer, bring: Any, upload: Any, acme: Any) -> None:
    upload(acme)
    assert bring("hub:org/adapter").reused_version


def test_a_private_repository_with_the_tenants_token(acme: Any, globex: Any, hub: HubServer, bring: Any) -> None:
    hub.token = "hf_of_acme"
    refused = bring("hub:org/adapter").reason
    assert refused["code"] == "source_forbidden"
    assert "or there is none of that name" in refused["message"], "the Hub answers so to strangers"
    assert "PUT hub-token" in refused["fix"]
    path = acme.path("hub-token")
    assert acme.client().put(path, {"token": "hf_of_acme"}, format="json").json() == {"set": True}
    assert acme.client().get(path).json() == {"set": True}
    assert globex.client().get(globex.path("hub-token")).json() == {"set": False}
    assert "hf_of_acme" not in HubToken.objects.get().sealed + str(list(AuditEvent.objects.values_list("detail")))
    with running_hub() as store:
        hub.store = store
        assert bring("hub:org/adapter").state == UploadState.ACCEPTED
        assert store.seen
        assert not any("authorization" in headers for _, headers in store.seen), "the token is for the Hub only"
    assert acme.client().delete(path).status_code == 204
    assert bring("hub:org/adapter").reason["code"] == "source_forbidden"
    actions = AuditEvent.objects.filter(action__startswith="hub_token").order_by("id").values_list("action", flat=True)
    assert list(actions) == ["hub_token.set", "hub_token.remove"]


def test_goes_on_where_the_connection_broke(hub: HubServer, bring: Any) -> None:
    with running_hub() as store:
        hub.store, store.cut_after = store, 1500
        upload = bring("hub:org/adapter")
        assert (upload.state, upload.reason["code"]) == (UploadState.RECEIVED, "source_unavailable")
        assert upload.reason["message"] == egress.CUT_OFF
        upload = again(upload)
        assert upload.state == UploadState.ACCEPTED
        assert store.seen[-1][1]["range"] == "bytes=1500-"
    assert sum(path.endswith("adapter_config.json") for path, _ in hub.seen) == 1, "what is there is not fetched again"


def test_a_part_that_is_shorter_than_requested_is_not_the_end(hub: HubServer, bring: Any) -> None:
    content = zip_of(FILES)
    hub.blobs["/a.zip"], hub.cut_after, hub.longest_part = content, 100, len(content) // 2
    states = [upload := bring(f"{hub.url}/a.zip")]
    while upload.state == UploadState.RECEIVED and len(states) < 4:
        states.append(upload := again(upload))
    assert [state.state for state in states] == ["received", "received", "accepted"], upload.reason


def test_a_hub_that_names_no_sizes(hub: HubServer, bring: Any) -> None:
    hub.names_sizes = False
    upload = bring("hub:org/adapter")
    assert upload.state == UploadState.ACCEPTED, upload.reason


def test_a_hub_that_answers_with_another_commit(hub: HubServer, bring: Any) -> None:
    hub.repositories["org/adapter"] = {"0" * 40: FILES}
    assert bring(f"hub:org/adapter@{'0' * 40}").reason["code"] == "hub_answer"


def test_a_branch_that_moves_meanwhile_changes_nothing(hub: HubServer, bring: Any) -> None:
    hub.cut_after = 100
    upload = bring("hub:org/adapter")
    files = hub.repositories["org/adapter"]
    files.update({"main": files["v2"], "old": FILES})
    assert again(upload).source["commit"] == commit_of(FILES)
    assert AdapterVersion.objects.count() == 1


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_hub_that_is_away_is_asked_again(hub: HubServer, bring: Any, status: int) -> None:
    hub.status = status
    upload = bring("hub:org/adapter")
    assert (upload.state, upload.reason["code"]) == (UploadState.RECEIVED, "source_unavailable")
    hub.status = None
    assert again(upload).state == UploadState.ACCEPTED


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"config.json": b"{}", "model.safetensors": b""}, "merged_model"),
        ({"model.Q4.gguf": b""}, "gguf"),
        ({"README.md": b""}, "missing_file"),
        ({"sub/adapter_config.json": b"{}", "sub/adapter_model.safetensors": b""}, "missing_file"),
    ],
)
def test_what_is_no_adapter_is_not_fetched(hub: HubServer, bring: Any, files: dict[str, bytes], code: str) -> None:
    hub.repositories["org/model"] = {"main": files}
    upload = bring("hub:org/model")
    assert (upload.state, upload.reason["code"]) == (UploadState.REFUSED, code)
    assert len(hub.seen) == 1


def test_a_folder_of_a_repository(acme: Any, hub: HubServer, bring: Any) -> None:
    inside = {f"runs/checkpoint-500/{name}": content for name, content in FILES.items()}
    beside = {f"runs/checkpoint-5/{name}": content for name, content in adapter_files(seed=1).items()}
    hub.repositories["org/trainings"] = {"main": {**beside, **inside, "config.json": b"{}"}}
    upload = bring("hub:org/trainings/runs/checkpoint-500@main")
    assert upload.state == UploadState.ACCEPTED, upload.reason
    shown = acme.client().get(acme.path(f"uploads/{upload.pk}")).json()["imported_from"]
    assert shown == {"name": "hub:org/trainings/runs/checkpoint-500", "revision": "main", "commit": commit_of(
        hub.repositories["org/trainings"]["main"])}  # fmt: skip
    assert {path.rpartition("/")[0][-15:] for path, _ in hub.seen[1:]} == {"/checkpoint-500"}
    assert bring("hub:org/adapter").reused_version
    refused = bring("hub:org/trainings").reason
    fix = "Import hub:org/trainings/runs/checkpoint-500, or another of these."
    assert (refused["code"], refused["fix"]) == ("missing_file", fix)
    assert refused["message"] == "Adapters lie in the folders runs/checkpoint-5, runs/checkpoint-500."
    assert bring("hub:org/trainings/runs").reason["fix"] == fix
    assert bring("hub:org/trainings/nothing").reason["code"] == "missing_file"


def test_missing_and_too_large(hub: HubServer, bring: Any, settings: Any) -> None:
    assert bring("hub:org/nothing").reason["code"] == "source_not_found"
    assert bring("hub:org/adapter@v9").reason["code"] == "source_not_found"
    hub.blobs["/a.zip"] = zip_of(FILES)
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"upload_max_bytes": 2000})
    assert bring("hub:org/adapter").reason["code"] == "upload_too_large"
    assert bring(f"{hub.url}/a.zip").reason["code"] == "upload_too_large"


@pytest.mark.parametrize(
    ("status", "headers", "code", "words"),
    [
        (403, {"X-Error-Code": "GatedRepo"}, "source_forbidden", "gated"),
        (404, {"X-Error-Code": "RevisionNotFound"}, "source_not_found", "no such revision"),
        (403, {"X-Error-Code": "DisabledRepo"}, "source_forbidden", "disabled"),
        (401, {"X-Error-Message": "Invalid credentials in Authorization header"}, "source_forbidden", "token"),
        (404, {"X-Error-Code": "RepoNotFound"}, "source_not_found", "there is no such repository"),
        (451, {"X-Error-Code": "Legal"}, "source_answer", "451"),
        (301, {}, "source_answer", "301"),
    ],
)
def test_what_the_hub_itself_calls_a_refusal(
    hub: HubServer, bring: Any, status: int, headers: dict[str, str], code: str, words: str
) -> None:
    hub.status, hub.refusal = status, (b"{}", headers)
    refused = bring("hub:org/adapter").reason
    assert (refused["code"], words in refused["message"], bool(refused["fix"])) == (code, True, True), refused


@pytest.mark.parametrize("source", ["hub:datasets/org/name", "https://huggingface.co/spaces/org/name/tree/main"])
def test_what_is_no_model_is_told(acme: Any, host: Any, source: str) -> None:
    answer = acme.client().post(acme.path("imports"), {"name": "x", "source": source}, format="json")
    assert answer.status_code == 400
    assert "of the Hub, not a model" in answer.json()["error"]["message"]


def test_an_address_whose_signature_has_ended(hub: HubServer, bring: Any) -> None:
    hub.status = 403
    refused = bring(f"{hub.url}/bucket/my.zip?X-Amz-Signature=hidden").reason
    assert (refused["code"], refused["fix"]) == ("source_forbidden", "Sign it again, and import the new address.")


def test_an_archive_at_a_signed_address(acme: Any, hub: HubServer, bring: Any) -> None:
    hub.blobs["/bucket/my.zip"] = zip_of({f"out/{name}": content for name, content in FILES.items()})
    upload = bring(f"{hub.url}/bucket/my.zip?X-Amz-Signature=hidden")
    assert upload.state == UploadState.ACCEPTED, upload.reason
    shown = acme.client().get(acme.path(f"uploads/{upload.pk}")).content.decode()
    assert f"{hub.url}/bucket/my.zip" in shown
    assert "hidden" not in shown + str(list(AuditEvent.objects.values_list("detail"))) + str(upload.source)


@pytest.mark.parametrize(
    "source",
    ["hub:name", "hub:../x/y", "hub:org/na me", "hub:org/a@../b", "hub:org/a/../b", "hub:org/a//b", "hub:org/a/",
     "org/name", "ftp://example.org/a.zip",
     "https://example.org/", "https://user@example.org/a.zip", "https://example.org/adapter_model.bin", ""],
)  # fmt: skip
def test_sources_that_are_refused_at_once(acme: Any, host: Any, source: str) -> None:
    answer = acme.client().post(acme.path("imports"), {"name": "x", "source": source}, format="json")
    assert answer.status_code == 400
    assert ("write hub:org/name." in answer.json()["error"]["fix"]) == (source == "org/name")
    assert not Upload.objects.exists()


@pytest.mark.parametrize("source", ["http://example.org/a.zip", "https://127.0.0.1/a.zip", "https://localhost/a.zip"])
def test_private_addresses_are_refused(acme: Any, host: Any, source: str) -> None:
    answer = acme.client().post(acme.path("imports"), {"name": "x", "source": source}, format="json")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "source_refused")


def test_a_redirect_into_our_network_is_not_followed(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first name is public; what it redirects to is checked like the first."""
    port = hub.server_address[1]
    monkeypatch.setattr(
        egress, "_lookup_host", lambda name, _: ["93.184.216.34"] if name == "public.example" else ["10.0.0.5"]
    )
    reached = []

    def at(client: Any, target: Any, addresses: list[str], *_: Any) -> Any:
        reached.append((str(target), addresses))

        return httpx.Response(302, headers={"location": f"https://metadata.example:{port}/latest"})

    monkeypatch.setattr(egress, "_get_at", at)
    with pytest.raises(egress.NotPublicError), egress.get("https://public.example/a.zip", {"Authorization": "x"}):
        pass
    assert reached == [("https://public.example/a.zip", ["93.184.216.34"])]
    for location in ("http://public.example/", "https://169.254.169.254/latest", "file:///etc/passwd"):
        monkeypatch.setattr(egress, "_get_at", redirect_to(location))
        with pytest.raises(egress.UrlRefusedError), egress.get("https://public.example/a.zip", {}):
            pass


def redirect_to(location: str) -> Callable[..., Any]:

    return lambda *_: httpx.Response(302, headers={"location": location})
