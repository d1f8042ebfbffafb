"""Run by test_mistral_oracle.py where mistral-common is: what each of Mistral's tokenizers writes for given calls.

Reads [[name, arguments], …] from standard input; writes {tokenizer: text between the prompt and the end of the turn}.
"""

import json
import sys
import tempfile
from pathlib import Path

import mistral_common
from mistral_common.protocol.instruct.messages import AssistantMessage, ToolMessage, UserMessage
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.protocol.instruct.tool_calls import Function, FunctionCall, Tool, ToolCall
from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

DATA = Path(mistral_common.__file__).parent / "data"
CALLS = json.load(sys.stdin)
TOOLS = [Tool(function=Function(name=name, description="", parameters={})) for name in {name for name, _ in CALLS}]


def tokenizers():
    for path in sorted(DATA.glob("*.model.v[3-9]*")):
        yield path.name, MistralTokenizer.from_file(str(path))
    # The vocabulary of Tekken under the later versions of the instruct format.
    tekken = json.loads((DATA / "tekken_240911.json").read_text())
    known = [dict(token) for token in Tekkenizer.DEPRECATED_SPECIAL_TOKENS]
    later = [{"token_str": name, "is_control": True} for name in ("[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]")]
    tekken["special_tokens"] = [{**token, "rank": rank} for rank, token in enumerate([*known, *later])]
    for version in ("v3", "v7", "v11", "v13"):
        with tempfile.NamedTemporaryFile("w", prefix="tekken", suffix=".json") as file:
            tekken["config"]["version"] = version
            json.dump(tekken, file)
            file.flush()
            yield f"tekken.{version}", MistralTokenizer.from_file(file.name)


def written(tokenizer: MistralTokenizer) -> str:
    question = [UserMessage(content="Weather?")]
    calls = [
        ToolCall(id=f"abcdefgh{number}", function=FunctionCall(name=name, arguments=json.dumps(arguments)))
        for number, (name, arguments) in enumerate(CALLS)
    ]
    answer = AssistantMessage(content=None, tool_calls=calls)
    results = [ToolMessage(tool_call_id=call.id, name=call.function.name, content="1") for call in calls]
    whole = tokenizer.encode_chat_completion(
        ChatCompletionRequest(messages=[*question, answer, *results], tools=TOOLS)
    ).tokens
    special = tokenizer.instruct_tokenizer.tokenizer
    start = whole.index(special.get_special_token("[TOOL_CALLS]"))
    end = whole.index(special.eos_id, start)
    text = tokenizer.decode(whole[start:end], special_token_policy=SpecialTokenPolicy.KEEP)
    return text.replace("\u2581", " ")  # as SentencePiece writes a space


json.dump({name: written(tokenizer) for name, tokenizer in tokenizers()}, sys.stdout)
