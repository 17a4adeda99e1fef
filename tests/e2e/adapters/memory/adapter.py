"""The control with something to see in its memory."""

import importlib.util
import json
import sys
from pathlib import Path

_CONTROL = Path(__file__).parents[4] / "adapters" / "bare" / "adapter.py"
_spec = importlib.util.spec_from_file_location("control", _CONTROL)
control = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(control)


class Tells(control.Bare):
    async def close(self):
        found = {"modules": sorted({name.partition(".")[0] for name in sys.modules}), "path": sys.path}
        sys.stderr.write(f"told: {json.dumps(found)}\n")
        await super().close()


class Leaks(control.Bare):
    kept = None

    async def invoke(self, request):
        self.kept = [self.kept, bytes(4096)]
        return await super().invoke(request)
