"""The adapters of LightAgent and of the control do a request's work, whole and streamed, in both scenarios."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agentdyno.contract.adapter import ChangesTools, LlmEndpoint, Streams, Tool, check_class, read_folder
from agentdyno.contract.proof import (
    ORDER_PATTERN,
    STEPS,
    TOKEN_PATTERN,
    Stage,
    chain,
    check_reference,
    order_id,
    token,
)
from agentdyno.contract.scenario import SCENARIOS
from tests.lightagent.fake_llm import FakeLlm, says

ADAPTERS = Path(__file__).parents[2] / "adapters"
FOLDER_OF = {"bare": "bare", "lightagent": "lightagent", "lightagent-llm": "lightagent"}
KEY = b"0123456789abcdef"


def variant_of(name):
    return next(it for it in read_folder(ADAPTERS / FOLDER_OF[name]).variants if it.name == name)


def make(name):
    module_name, class_name = variant_of(name).entry.split(":")
    file = ADAPTERS / FOLDER_OF[name] / f"{module_name}.py"
    spec = importlib.util.spec_from_file_location(f"adapter_of_{FOLDER_OF[name]}", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return getattr(module, class_name)()


def tools_for(parallel, called):
    def tool(name):
        async def function(reference: str) -> str:
            check_reference(KEY, name, reference, parallel=parallel)
            called.append(name)
            return json.dumps({"status": "ok", "reference": token(KEY, name, reference)})

        schema = {"type": "object", "properties": {"reference": {"type": "string"}}, "required": ["reference"]}
        return Tool(name, f"The {name} tool.", schema, function)

    return [tool(step.tool) for step in STEPS]


def llm_for(parallel):
    """Decides by the tokens in the messages, as the mock LLM of the rig does."""

    def script(body):
        text = json.dumps(body["messages"])
        order = re.search(ORDER_PATTERN, text).group()
        found = {made[:2]: made for made in re.findall(TOKEN_PATTERN, text)}
        missing = [step for step in STEPS if step.prefix not in found]
        if not missing:
            return says(f"It is filed as {found['RE']}, sorry.")
        if parallel:
            return says(None, *((step.tool, {"reference": order}) for step in missing))
        before = STEPS.index(missing[0]) - 1
        return says(None, (missing[0].tool, {"reference": found[STEPS[before].prefix] if before >= 0 else order}))

    return script


@asynccontextmanager
async def started(name, scenario):
    called = []
    async with FakeLlm(llm_for(scenario.parallel)).serve() as llm:
        adapter = make(name)
        tools = tools_for(scenario.parallel, called)
        await adapter.start(LlmEndpoint(llm.url, "mock", "key", 10.0), tools, scenario.system_prompt)
        try:
            yield adapter, llm, called
        finally:
            await adapter.close()


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
@pytest.mark.parametrize("name", FOLDER_OF)
async def test_the_work_of_a_request_is_done(name, scenario, streaming):
    async with started(name, scenario) as (adapter, llm, called):
        for index in range(2):
            request = scenario.request(1, Stage.MEASURE, index, 10_000, stream=streaming)
            if streaming:
                text = "".join([piece async for piece in adapter.stream(request)])
            else:
                text = await adapter.invoke(request)
            assert text == f"It is filed as {chain_end(index, scenario)}, sorry."
    assert sorted(called) == sorted([step.tool for step in STEPS] * 2)
    expected_calls = variant_of(name).llm_calls
    if scenario.parallel and expected_calls == 4:
        expected_calls = 2
    assert len(llm.requests) == 2 * expected_calls
    assert llm.connections == 1
    assert [message["role"] for message in llm.requests[0]["messages"][:4]] == ["system", "user", "assistant", "user"]


def chain_end(index, scenario):
    return chain(KEY, order_id(1, Stage.MEASURE, index), parallel=scenario.parallel)[-1][2]


async def test_the_state_machine_shows_the_llm_all_calls_and_results():
    scenario = SCENARIOS["parallel"]
    async with started("lightagent", scenario) as (adapter, llm, _):
        await adapter.invoke(scenario.request(1, Stage.MEASURE, 0, 10_000))
    assert [message["role"] for message in llm.requests[0]["messages"][4:]] == ["assistant", "tool", "tool", "tool"]
    assert len(llm.requests[0]["messages"][4]["tool_calls"]) == 3


async def test_tools_go_and_come_back():
    scenario = SCENARIOS["chain"]
    async with started("lightagent-llm", scenario) as (adapter, llm, called):
        names = [step.tool for step in STEPS]
        for _ in range(2):
            await adapter.remove_tool("resolution")
        await adapter.add_tool(tools_for(False, called)[2])
        request = scenario.request(1, Stage.MEASURE, 0, 10_000)
        await adapter.invoke(request)
        assert [it["function"]["name"] for it in llm.requests[0]["tools"]] == names
        assert called == names


@pytest.mark.parametrize("name", FOLDER_OF)
def test_classes_have_what_their_folder_declares(name):
    adapter, capabilities = make(name), variant_of(name).capabilities
    check_class(adapter, name)
    assert isinstance(adapter, Streams) == ("stream" in capabilities)
    assert isinstance(adapter, ChangesTools) == ("dynamic_tools" in capabilities)
