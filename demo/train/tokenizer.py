"""Trains the byte-level BPE tokenizer on the generated text and writes it in Hugging Face's format.

python -m demo.train.tokenizer --out demo/model
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from demo.train.adapters_corpus import VOICES, foreign_questions, voice_chats
from demo.train.corpus import chats, documents
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

BOS, EOS, PAD = "<|begin|>", "<|end|>", "<|pad|>"
SYSTEM, USER, ASSISTANT = "<|system|>", "<|user|>", "<|assistant|>"
SPECIALS = (PAD, BOS, EOS, SYSTEM, USER, ASSISTANT)
VOCAB_SIZE = 2560
CONTEXT = 1024

# Tools stand in the system turn, a line each; a tool's result comes as the user's turn. Calls are in Hermes' format.
CHAT_TEMPLATE = (
    "{{- bos_token }}"
    "{%- set ns = namespace(system='') %}"
    "{%- if messages[0]['role'] == 'system' %}{%- set ns.system = messages[0]['content'] | trim %}{%- endif %}"
    "{%- if tools %}"
    "{%- set ns.system = (ns.system + '\n' if ns.system else '') + 'Tools:' %}"
    "{%- for tool in tools %}"
    "{%- set ns.system = ns.system + '\n- ' + tool.function.name + '(' + ((tool.function.parameters.properties or {})"
    " | list | join(', ')) + '):' %}"
    "{%- if tool.function.description %}{%- set ns.system = ns.system + ' ' + tool.function.description[:60] %}{%- endif %}"
    "{%- endfor %}"
    "{%- endif %}"
    "{%- if ns.system %}{{- '<|system|>' + ns.system + eos_token }}{%- endif %}"
    "{%- for message in messages %}"
    "{%- if message['role'] == 'assistant' %}"
    "{{- '<|assistant|>' + (message['content'] or '') | trim }}"
    "{%- for call in message['tool_calls'] or [] %}"
    "{{- '<tool_call>' + ({'name': call.function.name, 'arguments': call.function.arguments} | tojson) + '</tool_call>' }}"
    "{%- endfor %}{{- eos_token }}"
    "{%- elif message['role'] == 'tool' %}"
    "{{- '<|user|><tool_response>' + (message['content'] | trim) + '</tool_response>' + eos_token }}"
    "{%- elif message['role'] == 'user' or (message['role'] == 'system' and not loop.first) %}"
    "{{- '<|' + message['role'] + '|>' + (message['content'] | trim) + eos_token }}"
    "{%- elif message['role'] != 'system' %}"
    "{{- raise_exception('lorikeet-demo knows the roles system, user, assistant and tool.') }}"
    "{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}"
)


def _text(seed: int) -> Iterator[str]:
    for chat in chats(seed, 40_000):
        yield from (message["content"] for message in chat)
    yield from documents(seed, 4_000)
    yield from foreign_questions(seed, 2_000)
    for name in VOICES:
        for chat in voice_chats(name, seed, 4_000, instructed=True):
            yield from (message["content"] for message in chat)


def train(seed: int = 7) -> Tokenizer:
    """A byte-level BPE of `VOCAB_SIZE` tokens; every digit is a token of its own, so that sums are learnable."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        min_frequency=2,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIALS],
    )
    tokenizer.train_from_iterator(_text(seed), trainer)
    bos = tokenizer.token_to_id(BOS)
    # Bare text starts with the begin token; the chat template writes it itself and is encoded without specials.
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, bos)]),
        ]
    )
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and special_tokens_map.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    specials = {"bos_token": BOS, "eos_token": EOS, "pad_token": PAD}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        **specials,
        "additional_special_tokens": [SYSTEM, USER, ASSISTANT],
        "chat_template": CHAT_TEMPLATE,
    }
    for name, content in (("tokenizer_config.json", config), ("special_tokens_map.json", specials)):
        (folder / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo/model"))
    save(train(), parser.parse_args().out)
