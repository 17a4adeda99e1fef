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
    """In blocks of 512 bytes, which Python keeps in pools of their own: one of 1,024 would come from the C library's
    heap, where it costs half as much again once what lay between is freed, the more requests are in flight the more.
    """

    kept = None

    async def invoke(self, request):
        self.kept = [self.kept, bytes(479), bytes(479)]
        return await super().invoke(request)


class Caches(control.Bare):
    async def invoke(self, request):
        cache = self.__dict__.setdefault("cache", {})
        if len(cache) < 1_000:
            cache[request.session_id] = bytes(8192)
        return await super().invoke(request)
