"""What of a chat completion server's answers is compared: of the mock's with vLLM's, of vLLM's with its recording.

Of every body and every event of a stream: its fields, how many items each list has, the types of values, whether a text
is empty, and BY_VALUE. Of the rest the value is each server's own: ids, times, names, token counts, the words of an
answer, which are the model's, and the messages of errors, which are for people; a client decides by `type`, `code` and
`param`.
"""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

# What a client decides by: the protocol's own words, and the tool, which the scenario gives. Booleans are too.
BY_VALUE = {"object", "role", "type", "finish_reason", "index", "name", "code", "param", "error"}
# What only vLLM has, all null but VERSION. A client that needs one of them would not work with OpenAI's own service
# either, and each costs every framework time to parse, so the mock leaves them out.
VERSION = "system_fingerprint"
ONLY_VLLM = {
    *("annotations", "audio", "function_call", "reasoning", "stop_reason", "token_ids", "routed_experts"),
    *("service_tier", "prompt_tokens_details", "completion_tokens_details", "prompt_logprobs", "prompt_token_ids"),
    *("prompt_text", "kv_transfer_params", "ec_transfer_params", "metrics"),
}


def facts(value: Any, at: str = "") -> dict[str, str]:
    """What is compared of a document, by path. An empty object and an empty list are facts as well."""
    if isinstance(value, dict):
        what, inner = "object", {f"{at}.{name}": item for name, item in value.items()}
    elif isinstance(value, list):
        what, inner = f"list of {len(value)}", {f"{at}[{index}]": item for index, item in enumerate(value)}
    else:
        said = value is None or value == "" or isinstance(value, bool) or not at or _name(at) in BY_VALUE
        what, inner = json.dumps(value) if said else type(value).__name__, {}
    return {at: what} | {path: fact for below, item in inner.items() for path, fact in facts(item, below).items()}


def of_vllm(value: Any) -> dict[str, str]:
    """The facts of a document of vLLM's, without what only vLLM has."""
    accepted = {(name, "null") for name in ONLY_VLLM} | {(VERSION, "str")}
    return {path: fact for path, fact in facts(value).items() if (_name(path), fact) not in accepted}


def steps(events: list[dict[str, str]]) -> dict[str, str]:
    """The facts of a stream's events in order; of equal ones in a row once, as the number of tokens is the model's."""
    numbered = enumerate(event for event, _ in groupby(events))
    return {f"event {number}{path}": fact for number, event in numbered for path, fact in event.items()}


def _name(path: str) -> str:
    return path.rpartition(".")[2]
