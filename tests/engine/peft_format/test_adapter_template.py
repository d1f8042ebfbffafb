"""Chat templates that adapters bring: where they are found, and which are refused at upload."""

from __future__ import annotations

import io
import json
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from lorikeet_testing.adapter_forms import ADAPTER, CHATML, OTHER, Files, peft, under
from lorikeet_testing.peft_files import as_candidate, tar_gz_of, zip_of

from control_plane.adapters.uploads.validation_sandbox import validate
from lora_engine.peft_format import AdapterTemplate, FormatError, try_template
from lora_engine.peft_format.adapter_template import MAX_TEMPLATE_CHARS, MAX_TEMPLATE_FILE_BYTES

JINJA, CONFIG, OLD = "chat_template.jinja", "tokenizer_config.json", "chat_template.json"
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
ALPACA = "{{ bos_token }}### Instruction:\n{{ messages[0].content }}\n\n### Response:\n"


def decide(folder: Path, files: Files, *, packed: Any = zip_of, **candidate: Any) -> dict[str, Any]:
    sent = folder / ("upload.zip" if packed is zip_of else "upload.tar.gz")
    sent.write_bytes(packed({**peft(ADAPTER), **files}))
    return validate(
        {
            "files": {sent.name: str(sent)},
            "into": str(folder / "unpacked"),
            "bases": [{**as_candidate(), **candidate}],
        }
    )


def config(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


@pytest.mark.parametrize("packed", [zip_of, tar_gz_of])
@pytest.mark.parametrize(
    ("files", "file"),
    [
        ({JINJA: CHATML.encode(), CONFIG: config(chat_template="other", eos_token="<e>")}, JINJA),
        ({CONFIG: config(chat_template=CHATML, eos_token={"content": "<e>"})}, CONFIG),
        ({CONFIG: config(chat_template=[{"name": "x", "template": CHATML}], eos_token="<e>")}, CONFIG),
        ({OLD: config(chat_template=CHATML), CONFIG: config(eos_token="<e>")}, OLD),
    ],
)
def test_it_is_found(tmp_path: Path, files: Files, file: str, packed: Any) -> None:
    answer = decide(tmp_path, files, packed=packed)
    assert answer["chat_template"] == {"source": CHATML, "tool_source": "", "special_tokens": {"eos_token": "<e>"}}
    (note,) = (note for note in answer["report"]["notes"] if file in note)
    assert note.endswith("which accepts system messages, several turns")
    assert answer["chat_template_digest"].startswith("sha256:")
    assert sorted(path.name for path in (tmp_path / "unpacked").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]


def test_a_template_for_tools_beside_another(tmp_path: Path) -> None:
    with_tools = CHATML + "{% if tools %}{{ tools | tojson }}{% endif %}"
    named = [{"name": "default", "template": ALPACA}, {"name": "tool_use", "template": with_tools}]
    answer = decide(tmp_path, {CONFIG: config(chat_template=named, eos_token="</s>")})
    assert (answer["chat_template"]["source"], answer["chat_template"]["tool_source"]) == (ALPACA, with_tools)
    assert any("which accepts tools" in note for note in answer["report"]["notes"])


def test_the_bases_own_is_none(tmp_path: Path) -> None:
    """As most adapters have it: saved with the tokenizer that they were trained with."""
    digest = AdapterTemplate(CHATML, "", {}, JINJA).source_digest
    answer = decide(tmp_path, {JINJA: CHATML.encode()}, chat_template_digest=digest)
    assert answer["report"]["ok"]
    assert (answer["chat_template"], answer["chat_template_digest"]) == (None, "")
    assert not any("template" in note for note in answer["report"]["notes"])


def test_it_is_that_of_the_adapters_folder(tmp_path: Path) -> None:
    """Checkpoints below may have another one, and folders beside the adapter may hold only a tokenizer."""
    files = {f"run/{name}": content for name, content in {**peft(ADAPTER), JINJA: CHATML.encode()}.items()}
    files |= under("run/checkpoint-5", {**peft(OTHER), JINJA: b"{{ broken"})
    files |= under("a-tokenizer", {CONFIG: config(chat_template="{{ broken")})
    (tmp_path / "upload.zip").write_bytes(zip_of(files))
    request = {"files": {"upload.zip": str(tmp_path / "upload.zip")}, "into": str(tmp_path / "unpacked")}
    answer = validate({**request, "bases": [as_candidate()]})
    assert answer["chat_template"]["source"] == CHATML


@pytest.mark.parametrize(
    ("source", "code", "says"),
    [
        ("{% for m in messages %}", "invalid_chat_template", "not valid Jinja"),
        ("{{ raise_exception('Only for tools') }}", "invalid_chat_template", "Only for tools"),
        ("{{ messages[7].content }}", "invalid_chat_template", "does not write a user's message"),
        ("Hello", "invalid_chat_template", "leaves out the user's"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "invalid_chat_template", "unsafe"),
        ("{% include '/etc/passwd' %}", "invalid_chat_template", "does not write"),
        ("x" * (MAX_TEMPLATE_CHARS + 1), "invalid_chat_template", "more than"),
        ("{{ messages[0].content }}\0", "invalid_chat_template", "characters that no text has"),
        (ENDLESS, "chat_template_too_costly", ""),
        ("{{ 'x' * 10 ** 10 }}", "chat_template_too_costly", ""),
        ("{{ messages[0].content * 10 ** 8 }}", "chat_template_too_costly", ""),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "invalid_chat_template", "recursion"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "invalid_chat_template", ""),
    ],
)
def test_broken_and_hostile_ones_are_refused(tmp_path: Path, source: str, code: str, says: str) -> None:
    began = time.monotonic()
    answer = decide(tmp_path, {JINJA: source.encode()})
    problem = answer["problem"]
    assert problem["code"] == code and says in problem["message"] and "leave the file out" in problem["fix"]
    assert not (tmp_path / "unpacked").exists()
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({JINJA: b"\xff"}, "no UTF-8"),
        ({CONFIG: b"{"}, "not valid JSON"),
        ({CONFIG: config(chat_template=7)}, "neither a text"),
        ({CONFIG: config(chat_template=[{"name": "a", "template": "x"}, {"name": "b", "template": "y"}])}, "neither"),
        ({CONFIG: config(chat_template=[{"name": "default", "template": 5}])}, "neither"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, files: Files, says: str) -> None:
    problem = decide(tmp_path, files)["problem"]
    assert problem["code"] == "invalid_chat_template" and says in problem["message"]


def test_a_tokenizers_config_of_any_size_is_no_hindrance(tmp_path: Path) -> None:
    """Nor is one too many of them."""
    large = config(chat_template=CHATML, filler="x" * MAX_TEMPLATE_FILE_BYTES)
    answer = decide(tmp_path, {CONFIG: large, **{f"x/{n}/{JINJA}": b"" for n in range(80)}}, packed=tar_gz_of)
    assert answer["chat_template"] is None and answer["report"]["ok"]
    assert any(CONFIG in note and "not used" in note for note in answer["report"]["notes"])


def test_a_template_that_comes_twice(tmp_path: Path) -> None:
    buffer = io.BytesIO(zip_of(peft(ADAPTER)))
    with zipfile.ZipFile(buffer, "a") as archive, pytest.warns(UserWarning):
        archive.writestr(JINJA, CHATML)
        archive.writestr(JINJA, CHATML)
    (tmp_path / "upload.zip").write_bytes(buffer.getvalue())
    request = {"files": {"upload.zip": str(tmp_path / "upload.zip")}, "into": str(tmp_path / "unpacked")}
    assert validate({**request, "bases": [as_candidate()]})["problem"]["code"] == "duplicate_file"


def test_what_a_template_is_good_for() -> None:
    assert try_template(AdapterTemplate(ALPACA, "", {"bos_token": "<s>"}, JINJA)).takes == "a single message"
    with pytest.raises(FormatError, match="not valid Jinja"):
        try_template(AdapterTemplate(ALPACA, "{% if %}", {}, JINJA))


@pytest.mark.parametrize(
    ("template", "eos", "known", "unknown"),
    [
        (CHATML, "<|im_end|>", ["<|im_end|>", "<|im_start|>"], []),
        (CHATML, "<|im_end|>", ["</s>"], ["<|im_end|>"]),
        (CHATML, "<|im_end|>", [], []),  # an engine of before they were stated
        # The template's end is another than its tokenizer's.
        (CHATML.replace("eos_token", "'<end_of_turn>'"), "<eos>", ["</s>"], ["<eos>", "<end_of_turn>"]),
        (CHATML.replace("eos_token", "'<end_of_turn>'"), "</s>", ["</s>"], ["<end_of_turn>"]),
        (CHATML, None, ["<|endoftext|>"], []),  # the base's own, by whatever name
        (ALPACA, "</s>", ["<s>", "</s>"], []),
        (ALPACA, "<|eot|>", ["<s>", "</s>"], ["<|eot|>"]),
    ],
)
def test_ends_that_the_base_does_not_have_are_reported(
    tmp_path: Path, template: str, eos: str | None, known: list[str], unknown: list[str]
) -> None:
    files = {JINJA: template.encode(), CONFIG: config(**({"eos_token": eos} if eos else {}))}
    answer = decide(tmp_path, files, added_tokens=known)
    notes = [note for note in answer["report"]["notes"] if note.startswith("the template ends answers with")]
    assert [" and ".join(unknown) in note for note in notes] == [True] * bool(unknown)
    assert all(f"no token of {as_candidate()['names'][0]}" in note and json.dumps(unknown) in note for note in notes)
