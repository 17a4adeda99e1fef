"""What a vLLM tells of its settings is kept as it tells it; what it does not tell is not there."""

import json
from collections.abc import Callable

import pytest

from agentdyno.backends.vllm.told import Ask, server_facts, settings_told
from tests.golden.vllm_recording import recorded

MODEL = "agentdyno-copying"
CONFIG = {
    "model_config": {"dtype": "torch.float16", "quantization": "gptq_marlin", "enforce_eager": False, "revision": None},
    "scheduler_config": {"max_num_seqs": 256, "policy": "fcfs"},
    "parallel_config": {"tensor_parallel_size": 1},
    "structured_outputs_config": {"backend": "auto", "reasoning_parser": ""},
    "speculative_config": None,
}


def server(**documents: str) -> Ask:
    """One that tells what is recorded, but for these: version, models, metrics, server_info; "" for none."""
    said = {"metrics": recorded("metrics").body, "models": recorded("models").body, "version": '{"version": "0.32.0"}'}

    def ask(path: str) -> bytes | None:
        found = {**said, **documents}.get(path.rsplit("/", 1)[-1].partition("?")[0])
        return found.encode() if found else None

    return ask


def metrics(*lines: str) -> str:
    return "".join(f"vllm:cache_config_info{{{line}}} 1.0\n" for line in lines)


def test_what_a_real_one_tells() -> None:
    told = settings_told(server(), MODEL)
    assert (told["version"], told["max_model_len"]) == ("0.32.0", 8192)
    names = ("block_size", "cache_dtype", "enable_prefix_caching", "gpu_memory_utilization", "num_gpu_blocks")
    assert [told[name] for name in names] == ["128", "auto", "False", "0.92", "8192"]
    # What it says of no setting, what was not set, and a folder of that machine.
    assert not told.keys() & {"engine", "_block_size_resolved", "sliding_window", "root"}


def test_a_server_in_development_mode_tells_its_configuration_and_its_environment_is_not_kept() -> None:
    said = {"vllm_config": CONFIG, "vllm_env": {"VLLM_HOST_IP": "10.0.0.1"}, "system_env": {"os": "Linux"}}
    told = settings_told(server(server_info=json.dumps(said)), MODEL)
    assert {name: value for name, value in told.items() if "." in name} == {
        "model_config.dtype": "torch.float16",
        "model_config.quantization": "gptq_marlin",
        "model_config.enforce_eager": False,
        "scheduler_config.max_num_seqs": 256,
        "parallel_config.tensor_parallel_size": 1,
        "structured_outputs_config.backend": "auto",
    }
    of_an_older_one = json.dumps({"vllm_config": "model='x', dtype=torch.float16"})
    assert not [name for name in settings_told(server(server_info=of_an_older_one), MODEL) if "." in name]


def test_engines_that_differ_are_both_told() -> None:
    told = settings_told(
        server(metrics=metrics('engine="0",num_gpu_blocks="10"', 'engine="1",num_gpu_blocks="11"')), MODEL
    )
    assert told["num_gpu_blocks"] == "10, 11"


def test_the_names_of_weights_are_kept_and_a_path_is_not() -> None:
    models = json.dumps({"data": [{"id": "other", "root": "no/such"}, {"id": "m", "root": "Qwen/weights"}]})
    assert server_facts(server(models=models), "m") == {
        "version": "0.32.0",
        "root": "Qwen/weights",
        "max_model_len": None,
    }
    assert server_facts(server(), MODEL)["root"] is None


def unreachable(path: str) -> bytes | None:
    raise OSError(path)


@pytest.mark.parametrize(
    "ask",
    [
        unreachable,
        lambda path: None,
        lambda path: b"\xff not UTF-8",
        lambda path: b"[1]",
        lambda path: b'{"version": 3, "data": [7, {"id": "m", "root": {}, "max_model_len": "x"}], "vllm_config": [1]}',
        lambda path: b'{"version": "' + b"9" * 300 + b'", "data": {"m": 1}, "vllm_config": {"model_config": "x"}}',
    ],
)
def test_one_that_tells_nothing_usable_has_told_nothing(ask: Callable[[str], bytes | None]) -> None:
    assert settings_told(ask, "m") == {}
    assert server_facts(ask, "m") == {"version": None, "root": None, "max_model_len": None}
