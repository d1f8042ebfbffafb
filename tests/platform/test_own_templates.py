"""An adapter's own chat template: from its upload into the version, and into the requests for it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lorikeet_testing.adapter_forms import CHATML
from lorikeet_testing.peft_files import adapter_files

from control_plane.adapters.registry.models import AdapterVersion
from control_plane.adapters.registry.resolve import resolve_model
from control_plane.adapters.registry.versions import mark_version_ready
from control_plane.adapters.uploads.models import UploadState
from control_plane.gateway.dispatch.generation import apply_adapter_template
from lora_engine.wire import engine_pb2 as pb

pytestmark = pytest.mark.django_db

CONFIG = json.dumps({"eos_token": "<|im_end|>"}).encode()
STORED = {"source": CHATML, "tool_source": "", "special_tokens": {"eos_token": "<|im_end|>"}}


def with_template(source: str = CHATML, **options: Any) -> dict[str, bytes]:
    return {**adapter_files(**options), "chat_template.jinja": source.encode(), "tokenizer_config.json": CONFIG}


def test_it_is_kept_with_the_version(acme: Any, upload: Any) -> None:
    made = upload(acme, files=with_template())
    assert made.version.chat_template == STORED
    shown = acme.client().get(acme.path("adapters/support/versions/1")).json()
    assert shown["chat_template"] == STORED
    assert any("the adapter's own template (chat_template.jinja)" in note for note in shown["report"]["notes"])
    # The same weights with another template are another version, with the same content for hosts.
    again = upload(acme, files=with_template())
    assert again.reused_version and again.version == made.version
    other = upload(acme, files=with_template(CHATML + "{# later #}"))
    bare = upload(acme, files=adapter_files())
    assert [version.number for version in (made.version, other.version, bare.version)] == [1, 2, 3]
    assert len({version.digest for version in AdapterVersion.objects.all()}) == 1
    assert acme.client().get(acme.path("adapters/support/versions/3")).json()["chat_template"] is None


def test_a_hostile_one_is_refused(acme: Any, upload: Any) -> None:
    loop = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    for source, code in ((loop, "chat_template_too_costly"), ("{{ messages", "invalid_chat_template")):
        refused = upload(acme, files=with_template(source))
        assert (refused.state, refused.reason["code"]) == (UploadState.REFUSED, code)
    assert not AdapterVersion.objects.exists()


def test_it_writes_the_chats_of_its_version(acme: Any, upload: Any) -> None:
    for name, files in {
        "own": with_template(),
        "same": with_template(seed=1),
        "other": with_template(CHATML + "{# other #}", seed=2),
        "bare": adapter_files(seed=3),
    }.items():
        mark_version_ready(upload(acme, name, files).version)

    def written(model: str, submit: pb.Submit) -> pb.Submit:
        apply_adapter_template(submit, resolve_model(acme.tenant, model)[0])
        return submit

    def chat() -> pb.Submit:
        return pb.Submit(chat=pb.Chat(messages=[pb.ChatMessage(role="user", content="hi")]))

    asked = written("own", chat()).chat.own_template
    assert (asked.source, dict(asked.special_tokens)) == (CHATML, {"eos_token": "<|im_end|>"})
    assert written("own@v1", chat()).chat.HasField("own_template")
    # Several adapters as one: by what they share, else by the base model's.
    assert written("own+same:0.5", chat()).chat.own_template == asked
    for model in ("bare", "own+other", "own+bare"):
        assert not written(model, chat()).chat.HasField("own_template"), model
    assert written("own", pb.Submit(text="hi")).WhichOneof("prompt") == "text"
