"""What a vLLM server tells of its own settings; of some its tool calls' success depends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from agentdyno.contract.summary import BackendFact, BackendFacts

Ask = Callable[[str], bytes | None]
"""The body at a path of the server, None where it offers none. May raise OSError."""

_CACHE = "vllm:cache_config_info"  # a gauge whose labels are settings
# Only a server with VLLM_SERVER_DEV_MODE=1 has this, and what else is there (its environment) is not ours to keep.
_SERVER_INFO = "/server_info?config_format=json"
_CONFIG = {
    "model_config": (
        *("dtype", "quantization", "revision", "tokenizer", "tokenizer_mode", "tokenizer_revision"),
        *("generation_config", "enforce_eager"),
    ),
    "scheduler_config": ("max_num_seqs", "max_num_batched_tokens", "enable_chunked_prefill"),
    "parallel_config": ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"),
    "structured_outputs_config": ("backend", "reasoning_parser"),
    "speculative_config": ("method", "num_speculative_tokens"),
}
_LONGEST = 200


def server_facts(ask: Ask, model: str) -> dict[str, str | int | None]:
    """Its version, and what it serves as `model`; None: it does not say. Never raises."""
    models = _document(ask, "/v1/models").get("data")
    named = [one for one in models if isinstance(one, dict)] if isinstance(models, list) else []
    served: Mapping[str, Any] = next((one for one in named if one.get("id") == model), {})
    length = served.get("max_model_len")
    return {
        "version": _text(_document(ask, "/version").get("version")),
        "root": _text(served.get("root")),
        "max_model_len": length if isinstance(length, int) else None,
    }


def settings_told(ask: Ask, model: str) -> dict[str, BackendFact]:
    """All that it tells, as it tells it, and no key for what it does not. Never raises."""
    told = {**server_facts(ask, model), **dict(_of_the_cache(ask)), **dict(_of_the_config(ask))}
    return {name: value for name, value in told.items() if value is not None}


def facts_told(ask: Ask, model: str) -> BackendFacts:
    """For the manifest: `told`, what it tells of its settings now; empty where it tells nothing. Never raises."""
    told = settings_told(ask, model)
    return {"told": told} if told else {}


def _of_the_cache(ask: Ask) -> Iterator[tuple[str, str]]:
    """The gauge's labels; where engines differ, each value that there is."""
    values: dict[str, dict[str, None]] = {}
    try:
        for family in text_string_to_metric_families((ask("/metrics") or b"").decode()):
            for sample in family.samples if family.name == _CACHE else ():
                for name, value in sample.labels.items():
                    values.setdefault(name, {})[value] = None
    except (OSError, ValueError):
        return
    for name, found in values.items():
        said = _text(", ".join(found))
        if said is not None and said != "None" and name != "engine" and not name.startswith("_"):
            yield name, said


def _of_the_config(ask: Ask) -> Iterator[tuple[str, BackendFact]]:
    config = _within(_document(ask, _SERVER_INFO), "vllm_config")
    for part, names in _CONFIG.items():
        settings = _within(config, part)
        for name in names:
            value = settings.get(name)
            yield f"{part}.{name}", value if isinstance(value, int | float) else _text(value)


def _within(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    inner = document.get(name)
    return inner if isinstance(inner, dict) else {}


def _text(value: Any) -> str | None:
    """A short text; none that is a path, which is of that machine and says nothing of a model."""
    usable = isinstance(value, str) and 0 < len(value) <= _LONGEST and not value.startswith("/")
    return value if usable else None


def _document(ask: Ask, path: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(ask(path) or b"{}", type=dict[str, Any])
    except (OSError, msgspec.MsgspecError):  # the counters, which are checked, say whether it is there at all
        return {}
