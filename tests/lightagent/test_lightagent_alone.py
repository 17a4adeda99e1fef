"""LightAgent stands alone: nothing of the rig is imported, and its README's example runs as it is printed."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.lightagent.fake_llm import FakeLlm, says

FOLDER = Path(__file__).parents[2] / "adapters" / "lightagent"


async def python(code):
    """Run `code` in a fresh interpreter that knows only LightAgent's folder; returns what it wrote."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"PYTHONPATH": str(FOLDER)}
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_it_imports_nothing_of_the_rig():
    names = await python("import sys, lightagent; print(*sys.modules)")
    assert "lightagent.agent" in names
    assert "agentdyno" not in names


async def test_the_readmes_example_runs():
    example = re.search(r"```python\n(.*?)```", (FOLDER / "README.md").read_text(encoding="utf-8"), re.S).group(1)
    assert len([line for line in example.splitlines() if line]) <= 15
    script = [says(None, ("weather", {"city": "Oslo", "days": 7})), says("No umbrella."), says("Nor in Bergen.")]
    async with FakeLlm(script).serve() as llm:
        assert await python(example.replace("http://127.0.0.1:8000/v1", llm.url)) == "No umbrella. 2\nNor in Bergen."
        assert llm.requests[1]["messages"][-1]["content"] == "Oslo: sunny for 7 days"
