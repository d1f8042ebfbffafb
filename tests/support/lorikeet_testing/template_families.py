"""Small chat templates in the forms of thirty families of models: how roles are marked, and what is done to the text.

None is a family's own template. Each shows one way to write turns, which is what decides where an answer begins and
ends: with or without special tokens, trimmed or as it is, with reasoning taken out, with parts instead of a text.
"""

# ruff: noqa: E501
from __future__ import annotations

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def _messages(body: str, *, begin: str = "", end: str = "") -> str:
    """Return a template that writes ``body`` for every message, and ``end`` if an answer is to begin."""
    generation = f"{{% if add_generation_prompt %}}{end}{{% endif %}}" if end else ""
    return f"{begin}{{% for message in messages %}}{body}{{% endfor %}}{generation}"


def _by_role(user: str, assistant: str, system: str = "") -> str:
    """Return a message's body where each role is written in its own way."""
    return (
        f"{{% if message.role == 'user' %}}{user}{{% elif message.role == 'assistant' %}}{assistant}"
        f"{{% else %}}{system}{{% endif %}}"
    )


_TEXT = "{{ message.content }}"
_TRIMMED = "{{ message.content | trim }}"
_PARTS = (
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}{{ part.text }}{% endfor %}{% endif %}"
)
_AFTER_REASONING = (
    "{% set text = message.content %}"
    "{% if '</think>' in text %}{% set text = text.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
)

FAMILIES: dict[str, str] = {
    "chatml": _messages(f"<|im_start|>{{{{ message.role }}}}\n{_TEXT}<|im_end|>{{{{ '\\n' }}}}", end="<|im_start|>assistant\n"),
    "chatml_trimmed": _messages("{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>\\n' }}"),
    "qwen3": _messages(
        "<|im_start|>{{ message.role }}{{ '\\n' }}{% if message.role == 'assistant' %}" + _AFTER_REASONING
        + "{% if loop.last %}<think>\n\n</think>\n\n{% endif %}{{ text }}{% else %}{{ message.content }}{% endif %}"
        "<|im_end|>{{ '\\n' }}"
    ),
    "llama2": _messages(
        _by_role(
            "{{ bos_token + '[INST] ' + message.content | trim + ' [/INST]' }}",
            "{{ ' ' + message.content | trim + ' ' + eos_token }}",
            "{{ '<<SYS>>\\n' + message.content | trim + '\\n<</SYS>>\\n\\n' }}",
        )
    ),
    "llama3": _messages(
        "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}",
        begin="{{ bos_token }}",
        end="{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}",
    ),
    "llama4": _messages("<|header_start|>{{ message.role }}<|header_end|>\n\n" + _PARTS + "<|eot|>", begin="{{ bos_token }}"),
    "mistral_v1": _messages(
        _by_role("{{ '[INST] ' + message.content + ' [/INST]' }}", "{{ message.content + eos_token }}"),
        begin="{{ bos_token }}",
    ),
    "mistral_v3": _messages(
        _by_role("[INST] {{ message.content }}[/INST]", "{{ ' ' + message.content | trim + eos_token }}"),
        begin="{{ bos_token }}",
    ),
    "mistral_tekken": _messages(_by_role(f"[INST]{_TEXT}[/INST]", f"{_TEXT}{{{{ eos_token }}}}", f"[SYSTEM_PROMPT]{_TEXT}[/SYSTEM_PROMPT]")),
    "gemma": _messages(
        "{% set role = 'model' if message.role == 'assistant' else message.role %}"
        "{{ '<start_of_turn>' + role + '\\n' + message.content | trim + '<end_of_turn>\\n' }}",
        begin="{{ bos_token }}",
        end="<start_of_turn>model\n",
    ),
    "phi3": _messages("{{ '<|' + message.role + '|>\\n' + message.content + '<|end|>\\n' }}", end="<|assistant|>\n"),
    "phi4": _messages("{{ '<|im_start|>' + message.role + '<|im_sep|>' + message.content + '<|im_end|>' }}"),
    "zephyr": _messages("{{ '<|' + message.role + '|>\\n' + message.content + eos_token + '\\n' }}", end="<|assistant|>\n"),
    "vicuna": _messages(
        _by_role("{{ 'USER: ' + message.content + ' ' }}", "{{ 'ASSISTANT: ' + message.content + eos_token }}"),
        end="ASSISTANT:",
    ),
    "alpaca": _messages(
        _by_role(
            "### Instruction:\n{{ message.content | trim }}{{ '\\n\\n' }}",
            "### Response:\n{{ message.content | trim }}{{ '\\n\\n' }}",
        ),
        end="### Response:\n",
    ),
    "falcon": _messages("{{ message.role | capitalize }}: {{ message.content | trim }}{{ '\\n' }}", end="Assistant:"),
    "openchat": _messages(
        "{{ 'GPT4 Correct ' + message.role | title + ': ' + message.content + '<|end_of_turn|>' }}",
        begin="{{ bos_token }}",
    ),
    "deepseek": _messages(
        _by_role("<|User|>{{ message.content }}", _AFTER_REASONING + "<|Assistant|>{{ text }}<|end_of_sentence|>"),
        begin="{{ bos_token }}",
        end="<|Assistant|><think>\n",
    ),
    "command_r": _messages(
        "<|START_OF_TURN_TOKEN|><|{{ 'CHATBOT' if message.role == 'assistant' else message.role | upper }}_TOKEN|>"
        "{{ message.content | trim }}<|END_OF_TURN_TOKEN|>"
    ),
    "glm4": _messages("<|{{ message.role }}|>\n{{ message.content }}", begin="[gMASK]<sop>", end="<|assistant|>"),
    "glm4_moe": _messages(
        "<|{{ message.role }}|>{% if message.role == 'assistant' %}" + _AFTER_REASONING
        + "\n<think></think>{% if text.strip() %}{{ '\\n' + text.strip() }}{% endif %}"
        "{% else %}\n{{ message.content }}{% endif %}",
        begin="[gMASK]<sop>",
    ),
    "granite": _messages(
        "{{ '<|start_of_role|>' + message.role + '<|end_of_role|>' + message.content + '<|end_of_text|>\\n' }}"
    ),
    "gpt_oss": _messages(
        "<|start|>{{ message.role }}{% if message.role == 'assistant' %}<|channel|>final{% endif %}"
        "<|message|>{{ message.content }}{{ '<|return|>' if loop.last else '<|end|>' }}"
    ),
    "internlm2": _messages("{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}", begin="{{ bos_token }}"),
    "olmo2": _messages(
        _by_role(
            "{{ '<|user|>\\n' + message.content + '\\n' }}",
            "{{ '<|assistant|>\\n' + message.content + eos_token }}{% if not loop.last %}{{ '\\n' }}{% endif %}",
        )
    ),
    "exaone": _messages("[|{{ message.role }}|]{{ message.content }}[|endofturn|]{{ '\\n' }}", end="[|assistant|]"),
    "minicpm": _messages(_by_role("<用户>{{ message.content.strip() }}", "<AI>{{ message.content.strip() }}")),
    "solar": _messages(
        "### {{ message.role | capitalize }}:\n{{ message.content }}{{ '\\n\\n' }}", end="### Assistant:\n"
    ),
    "nemotron": _messages("<extra_id_{{ 1 if message.role != 'system' else 0 }}>{{ message.role | title }}\n{{ message.content.strip() }}\n\n"),
    "starchat": _messages("<|{{ message.role }}|>\n" + _PARTS + "<|end|>\n", end="<|assistant|>\n"),
    "trims_the_end_only": _messages("<{{ message.role }}> {{ message.content.rstrip() }} </{{ message.role }}>\n"),
}  # fmt: skip
