"""The options of a backend: its kind, where it is, which model it is asked for, its key, and how it was started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from agentdyno.backends.stated import read_stated
from agentdyno.backends.vllm.copying_model import NAME as VLLM_CPU_MODEL
from agentdyno.contract.api_key import ApiKeyError, read_api_key
from agentdyno.rig.environments.environment import VLLM_CPU
from agentdyno.rig.option_values import OptionError

API_KEY_VARIABLES = ("AGENTDYNO_LLM_API_KEY", "OPENAI_API_KEY")
MOCK = "mock"
OPENAI = "openai"
VLLM = "vllm"
MOCK_MODEL = "agentdyno-mock"


def api_key(environ: Mapping[str, str] = os.environ) -> str | None:
    """The key for a backend of one's own, from the environment and from nowhere else. Raises OptionError."""
    try:
        return read_api_key(environ, API_KEY_VARIABLES)
    except ApiKeyError as error:
        raise OptionError(str(error)) from error


def stated_settings(text: str | None, started_by: str | None) -> str | None:
    """SETTINGS, as its user states them. started_by: who started the server; None: its user. Raises OptionError."""
    if text is None:
        return None
    if started_by is not None:
        raise OptionError(
            f"SETTINGS states how a server of yours was started; the settings of one that {started_by} starts are "
            "known. Leave it out."
        )
    try:
        return read_stated(text)
    except ValueError as error:
        raise OptionError(f"SETTINGS: {error}") from error


def model_name(model: str | None, backend: str) -> str:
    """MODEL, or what a backend of ours serves. Raises OptionError."""
    if backend == VLLM_CPU:
        if model not in (None, VLLM_CPU_MODEL):
            raise OptionError(f"BACKEND={VLLM_CPU} serves {VLLM_CPU_MODEL} and nothing else; leave MODEL out.")
        return VLLM_CPU_MODEL
    if backend != MOCK and not model:
        raise OptionError("A backend of your own needs MODEL=name: the model to ask it for.")
    return model or MOCK_MODEL


def kind_and_url(text: str, url: str | None) -> tuple[str, str | None]:
    """BACKEND and URL: what kind of backend, and where, when it is the user's own. Raises OptionError."""
    if text == VLLM:
        if url is None:
            raise OptionError(f"BACKEND={VLLM} is a server of yours: add URL=http://host:8000/v1, or say {VLLM_CPU}.")
        return VLLM, _vllm_address(url)
    if url is not None:
        raise OptionError(f"URL goes with BACKEND={VLLM}; any other server's address is BACKEND itself.")
    if text in (MOCK, VLLM_CPU):
        return text, None
    return OPENAI, _address("BACKEND", text)


def _vllm_address(text: str) -> str:
    url = _address("URL", text)
    if not url.endswith("/v1"):
        meant = f"{url.partition('/v1/')[0].removesuffix('/metrics')}/v1"
        raise OptionError(f"URL={text!r} is not where vLLM's API begins, which ends in /v1: say URL={meant} instead.")
    return url


def _address(name: str, text: str) -> str:
    if set(text) & set("@?#"):
        raise OptionError(
            f"{name} is a base URL, with no user, query or fragment; a key goes into the environment as "
            f"{API_KEY_VARIABLES[0]}."
        )
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or any(c <= " " for c in text):
        known = f"none of {MOCK}, {VLLM_CPU}, {VLLM}, nor" if name == "BACKEND" else "not"
        raise OptionError(f"{name}={text!r} is {known} an http(s) URL such as http://127.0.0.1:8001/v1.")
    return text.rstrip("/")
