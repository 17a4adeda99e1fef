"""How vLLM is served without a GPU: its command line and its environment, everything within one folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from agentdyno.backends.vllm.copying_model import CONTEXT_TOKENS, NAME

TEMPLATE = Path(__file__).with_name("chat_template.jinja")
SEATS = 16
SOCKETS, SCRATCH = "sockets", "tmp"
_KV_SPACE_GIB = "1"
_BATCH_TOKENS = 8192
_SPANS_EVERY_MS = "200"


def arguments(model: Path, *, port: int, seed: int, parallel: bool, traces_url: str | None = None) -> list[str]:
    """What `vllm` is called with. parallel: see contract/scenario.py. traces_url: for its spans, OTLP over HTTP."""
    served = ["serve", str(model), "--served-model-name", NAME, "--host", "127.0.0.1", "--port", str(port)]
    traces = ["--otlp-traces-endpoint", traces_url] if traces_url is not None else []
    return [*served, "--seed", str(seed), *settings(parallel=parallel), *traces]


def settings(*, parallel: bool) -> list[str]:
    """Those that shape what it answers, and how: the manifest names them."""
    size = ["--max-model-len", str(CONTEXT_TOKENS), "--max-num-seqs", str(SEATS)]
    size += ["--max-num-batched-tokens", str(_BATCH_TOKENS)]
    # In float32 alone the copying head is sharp enough; eager: there is no compiler on a machine that only measures.
    shape = ["--dtype", "float32", "--enforce-eager"]
    tools = ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    tools += ["--default-chat-template-kwargs", json.dumps({"parallel": parallel})]
    # A prompt's tokens are counted whole, whether or not an earlier prompt began like it.
    counting = ["--no-enable-prefix-caching", "--disable-uvicorn-access-log"]
    return [*size, *shape, *tools, *counting]


def shaping(cores: int) -> Mapping[str, str]:
    """Variables that do so as well: the manifest names them. cores: as many threads."""
    return {
        "VLLM_CPU_KVCACHE_SPACE": _KV_SPACE_GIB,
        # Not its own choice of cores: it stays on those that the rig gives it.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": str(cores),
    }


def environment(folder: Path, cores: int) -> Mapping[str, str]:
    """Variables for its process: offline, silent to the outside, its caches in `folder`. It is to run in the folder of
    sockets in there. cores: as many threads.
    """
    caches = {
        "HF_HOME": "hf",
        "XDG_CACHE_HOME": "cache",
        "XDG_CONFIG_HOME": "config",
        "VLLM_CACHE_ROOT": "vllm",
        "VLLM_CONFIG_ROOT": "config/vllm",
        "TORCHINDUCTOR_CACHE_DIR": "inductor",
        "NUMBA_CACHE_DIR": "numba",
        "TMPDIR": SCRATCH,
    }
    return {
        # A signal leaves sockets and scratch files behind: there the next start finds and removes them.
        **{name: str(folder / place) for name, place in caches.items()},
        # A socket's path has 107 characters at most, which a checkout's own may use up.
        "VLLM_RPC_BASE_PATH": ".",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        **shaping(cores),
        "VLLM_HOST_IP": "127.0.0.1",
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        "OTEL_BSP_SCHEDULE_DELAY": _SPANS_EVERY_MS,
        "OTEL_SERVICE_NAME": "vllm",
    }


def program(python: Path) -> Sequence[str]:
    """The start of its command line: the program beside the environment's interpreter, under its guard (guard.py)."""
    return [sys.executable, "-m", "agentdyno.backends.vllm.guard", str(python), str(python.with_name("vllm"))]
