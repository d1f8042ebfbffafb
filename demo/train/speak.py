"""Loads the demo model with transformers and PEFT and lets it answer many chats at once, greedily."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from demo.train.corpus import Message
from peft import PeftModel
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast


@dataclass(frozen=True)
class Reply:
    """What was said, and whether it ended by itself."""

    text: str
    ended: bool


class Speaker:
    """The base model, or the base model with one adapter, in float32."""

    def __init__(self, model_dir: Path, adapter: Path | None = None) -> None:
        self.tokenizer = PreTrainedTokenizerFast.from_pretrained(model_dir, padding_side="left")
        self.model: Any = LlamaForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
        if adapter is not None:
            self.model = PeftModel.from_pretrained(self.model, str(adapter))
        self.model.eval()

    def reply(self, chats: list[list[Message]], *, most: int = 160, batch: int = 16) -> list[Reply]:
        """One greedy reply to each chat, at most `most` tokens long."""
        return [reply for at in range(0, len(chats), batch) for reply in self._batch(chats[at : at + batch], most)]

    def ask(self, questions: list[str]) -> list[Reply]:
        """Replies to single questions."""
        return self.reply([[{"role": "user", "content": question}] for question in questions])

    @torch.inference_mode()
    def _batch(self, chats: list[list[Message]], most: int) -> list[Reply]:
        texts = [self.tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False) for chat in chats]
        inputs = self.tokenizer(
            texts, return_tensors="pt", padding=True, add_special_tokens=False, return_token_type_ids=False
        )
        output = self.model.generate(**inputs, do_sample=False, temperature=None, top_p=None, max_new_tokens=most)
        new = output[:, inputs["input_ids"].shape[1] :]
        end = self.tokenizer.eos_token_id
        return [Reply(self.tokenizer.decode(row, skip_special_tokens=True), bool((row == end).any())) for row in new]
