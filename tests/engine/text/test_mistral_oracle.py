"""What Mistral's own tokenizers write for tool calls is read as those calls.

mistral-common ships the real vocabularies and the instruct formats v3 to v13; it is installed into a virtual
environment of its own. ``LORIKEET_TEST_MISTRAL_COMMON`` names the Python of one that is there already.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from lorikeet_testing.tool_outputs import Read, output_of, read

pytestmark = pytest.mark.long

PACKAGE = "mistral-common[sentencepiece]==1.13.1"
PROGRAM = Path(__file__).parent / "oracles" / "mistral_calls.py"
CALLS = [
    ("get_weather", {"city": 'Os"lo é', "days": 3, "units": ["c", None, True]}),
    ("f", {}),
    ("add", {"a": -1.5, "b": {"nested": "[TOOL_CALLS] }] text"}}),
]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    if known := os.environ.get("LORIKEET_TEST_MISTRAL_COMMON"):
        return known
    folder = tmp_path_factory.mktemp("mistral") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "-q", PACKAGE], check=True)
    return str(folder / "bin" / "python")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_calls_as_the_model_was_taught_them(python: str, count: int) -> None:
    calls = CALLS[:count]
    done = subprocess.run([python, PROGRAM], input=json.dumps(calls), capture_output=True, text=True, check=True)
    written: dict[str, str] = json.loads(done.stdout)
    assert len(written) == 7
    for tokenizer, text in written.items():
        for pieces in ([text], text):  # whole, and a character at a time
            found = read(output_of("mistral"), pieces)
            assert (found.text, found.reasoning) == ("", ""), tokenizer
            assert [(name, json.loads(arguments)) for name, arguments in found.calls] == calls, (tokenizer, text)
        before = read(output_of("mistral"), f"I look.{text}")
        assert before == Read("I look.", calls=found.calls), tokenizer
