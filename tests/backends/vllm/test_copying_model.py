"""The copying model says what its template wrote, and the template says what the scripted mock says."""

import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agentdyno.backends.mock_llm.script import next_turn
from agentdyno.backends.vllm.copying_model import CONTEXT_TOKENS, REACH, vocabulary, weights, write_model
from agentdyno.backends.vllm.serving import TEMPLATE
from agentdyno.contract.proof import STEPS, Stage, chain, order_id

KEY = b"0123456789abcdef"
ORDER = order_id(1, Stage.MEASURE, 500)
TOOLS = [
    {"type": "function", "function": {"name": step.tool, "parameters": {"type": "object", "properties": {}}}}
    for step in STEPS
]
# The file's hash: whoever changes the model changes the workload of every run with it.
WEIGHTS_SHA256 = "0002d4fd41ed5415b9ff2caf10e81279fb541f956841d78c697ff34c37392ba5"


def render(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None, *, parallel: bool = False) -> str:
    """As transformers renders it."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
    environment.globals["raise_exception"] = _refuse
    template = environment.from_string(TEMPLATE.read_text())
    return template.render(messages=messages, tools=tools, parallel=parallel, add_generation_prompt=True)


def _refuse(text: str) -> None:
    raise ValueError(text)


def answer_of(prompt: str) -> str:
    """What the prompt's end says, without what only makes it long enough."""
    return prompt.rpartition("<|im_start|>assistant\n")[2].replace("<|pad|>", "")


def said(prompt: str) -> tuple[list[tuple[str, str]], str]:
    """The calls, or the text."""
    answer = answer_of(prompt).removesuffix("<|im_end|>")
    calls = [json.loads(text) for text in re.findall(r"<tool_call>(.*?)</tool_call>", answer, re.DOTALL)]
    return [(call["name"], call["arguments"]["reference"]) for call in calls], "" if calls else answer


def tokens(text: str) -> list[int]:
    """By hand: what is always one token, else bytes."""
    known = vocabulary()
    whole = sorted((name for name, number in known.items() if number >= 256), key=len, reverse=True)
    ids: list[int] = []
    for piece in re.split(f"({'|'.join(map(re.escape, whole))})", text):
        ids += [known[piece]] if piece in whole else list(_bytes(piece))
    return ids


def _bytes(text: str) -> list[int]:
    return list(text.encode())


class Qwen2:
    """The architecture in numpy, read from the file: nothing of the code that wrote it."""

    def __init__(self, folder: Path) -> None:
        content = (folder / "model.safetensors").read_bytes()
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size])
        self.config = json.loads((folder / "config.json").read_text())
        self.tensors = {}
        for name, about in header.items():
            if name != "__metadata__":
                begin, end = about["data_offsets"]
                numbers = np.frombuffer(content[8 + size + begin : 8 + size + end], dtype="<f4")
                self.tensors[name] = numbers.reshape(about["shape"])

    def next_tokens(self, ids: list[int]) -> list[int]:
        """The most likely token after each."""
        t = self.tensors
        x = t["model.embed_tokens.weight"][ids]
        layer = "model.layers.0."
        h = self._norm(x, t[f"{layer}input_layernorm.weight"])
        q, k, v = (
            h @ t[f"{layer}self_attn.{name}_proj.weight"].T + t[f"{layer}self_attn.{name}_proj.bias"] for name in "qkv"
        )
        q, k = self._rotated(q), self._rotated(k)
        scores = q @ k.T / math.sqrt(q.shape[1])
        scores[np.triu_indices(len(ids), 1)] = -np.inf
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        x = x + shares / shares.sum(axis=1, keepdims=True) @ v @ t[f"{layer}self_attn.o_proj.weight"].T
        h = self._norm(x, t[f"{layer}post_attention_layernorm.weight"])
        gate = h @ t[f"{layer}mlp.gate_proj.weight"].T
        inner = gate / (1 + np.exp(-gate)) * (h @ t[f"{layer}mlp.up_proj.weight"].T)
        x = x + inner @ t[f"{layer}mlp.down_proj.weight"].T
        logits = self._norm(x, t["model.norm.weight"]) @ t["lm_head.weight"].T
        best = np.sort(logits, axis=1)
        # So clear that no sampling temperature in use would choose another.
        self.least_margin = float((best[:, -1] - best[:, -2])[REACH:].min())
        return [int(number) for number in logits.argmax(axis=1)]

    def _norm(self, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + self.config["rms_norm_eps"]) * weight

    def _rotated(self, x: np.ndarray) -> np.ndarray:
        half = x.shape[1] // 2
        theta = self.config["rope_parameters"]["rope_theta"] ** (-np.arange(half) / half)
        angle = np.arange(len(x))[:, None] * theta
        first, second = x[:, :half], x[:, half:]
        return np.concatenate(
            [first * np.cos(angle) - second * np.sin(angle), second * np.cos(angle) + first * np.sin(angle)], axis=1
        ).astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Qwen2:
    folder = tmp_path_factory.mktemp("model")
    write_model(folder, TEMPLATE)
    return Qwen2(folder)


def conversations(*, parallel: bool) -> list[list[dict[str, Any]]]:
    """The scenario's, one longer than the other by a tool result; results wrapped in different ways."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You serve customers."},
        {"role": "user", "content": f"My order {ORDER} has still not been shipped."},
    ]
    made = [list(messages)]
    wraps = (
        lambda text: text,
        lambda text: json.dumps({"result": json.dumps({"status": "ok", "reference": text})}),
        lambda text: f"Observation: {text}!",
    )
    for (tool, reference, token), wrap in zip(chain(KEY, ORDER, parallel=parallel), wraps, strict=True):
        call = {"type": "function", "function": {"name": tool, "arguments": {"reference": reference}}}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": wrap(token)},
        ]
        made.append(list(messages))
    return made


def text_of(messages: list[dict[str, Any]]) -> str:
    return "\n".join(json.dumps(message, ensure_ascii=False) for message in messages).replace("\\", "")


@pytest.mark.parametrize("parallel", [False, True])
def test_the_template_says_what_the_mock_says(parallel: bool) -> None:
    names = [step.tool for step in STEPS]
    for messages in conversations(parallel=parallel):
        turn = next_turn(text_of(messages), parallel=parallel, offered=names)
        calls, text = said(render(messages, TOOLS, parallel=parallel))
        assert calls == [(request.tool, request.reference) for request in turn.requests]
        assert turn.final == bool(text)
        if turn.final:
            assert text == turn.text


def test_without_tools_or_an_order_it_says_so() -> None:
    (messages, *_) = conversations(parallel=False)
    assert said(render(messages)) == ([], "I need a tool which this request does not offer: order_status")
    assert said(render(messages, TOOLS[1:]))[1].endswith(": order_status")
    assert said(render([{"role": "user", "content": "Hello"}], TOOLS))[1].startswith("I found no order id")
    assert said(render([{"role": "user", "content": "ORD-"}], TOOLS))[1].startswith("I found no order id")


def test_a_planner_that_has_called_all_tools_gets_its_answer_without_offering_them() -> None:
    *_, finished = conversations(parallel=False)
    last = chain(KEY, ORDER)[-1][2]
    assert said(render(finished))[1] == f"The resolution's reference is {last}."


def test_the_last_order_counts() -> None:
    messages = [{"role": "user", "content": f"ORD-m1-00000000 was fine, {ORDER} is not"}]
    assert said(render(messages, TOOLS))[0] == [("order_status", ORDER)]


@pytest.mark.parametrize("parallel", [False, True])
def test_the_answer_begins_as_far_back_as_the_model_reaches(parallel: bool) -> None:
    for messages in conversations(parallel=parallel):
        ids = tokens(render(messages, TOOLS, parallel=parallel))
        answer = tokens(answer_of(render(messages, TOOLS, parallel=parallel)))
        assert ids[-REACH:][: len(answer)] == answer
        assert set(ids[-REACH:][len(answer) :]) == {vocabulary()["<|pad|>"]}


@pytest.mark.parametrize("parallel", [False, True])
def test_the_model_copies_it_token_by_token(model: Qwen2, parallel: bool) -> None:
    for messages in conversations(parallel=parallel):
        prompt = render(messages, TOOLS, parallel=parallel)
        answer = tokens(answer_of(prompt))
        ids = tokens(prompt)
        generated = model.next_tokens([*ids, *answer])[len(ids) - 1 :][: len(answer)]
        assert generated == answer
        assert model.least_margin > 30


def test_it_still_does_at_the_end_of_its_context(model: Qwen2) -> None:
    messages = [{"role": "user", "content": "x" * 3000 + ORDER}]
    prompt = render(messages, TOOLS)
    answer, ids = tokens(answer_of(prompt)), tokens(prompt)
    assert 3000 < len(ids) + len(answer) < CONTEXT_TOKENS
    assert model.next_tokens([*ids, *answer])[len(ids) - 1 :][: len(answer)] == answer


def test_an_answer_that_is_too_long_to_copy_is_refused() -> None:
    order = "ORD-m" + "f" * 60 + "-00000000"
    with pytest.raises(ValueError, match="more tokens than the model can copy"):
        render([{"role": "user", "content": order}], TOOLS, parallel=True)


def test_the_model_is_the_same_bytes_everywhere(tmp_path: Path) -> None:
    assert hashlib.sha256(weights()).hexdigest() == WEIGHTS_SHA256
    first = write_model(tmp_path / "a", TEMPLATE)
    assert write_model(tmp_path / "b", TEMPLATE) == first
    other = tmp_path / "template"
    other.write_text(TEMPLATE.read_text() + "\n")
    assert write_model(tmp_path / "c", other) != first
    assert sum(file.stat().st_size for file in (tmp_path / "a").iterdir()) < 1_000_000


def test_what_is_there_already_is_left_alone(tmp_path: Path) -> None:
    write_model(tmp_path, TEMPLATE)
    before = {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    (tmp_path / "config.json").write_text("{}")
    write_model(tmp_path, TEMPLATE)
    changed = [file.name for file in tmp_path.iterdir() if file.stat().st_mtime_ns != before[file.name]]
    assert changed == ["config.json"]


def test_the_vocabulary_is_as_large_as_the_tokens_that_there_are(tmp_path: Path) -> None:
    write_model(tmp_path, TEMPLATE)
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    numbers = [*tokenizer["model"]["vocab"].values(), *(one["id"] for one in tokenizer["added_tokens"])]
    config = json.loads((tmp_path / "config.json").read_text())
    assert sorted(numbers) == list(range(config["vocab_size"]))
