"""The Python of the fake cluster's pods: each program in a process of its own, forked from one that has imported what
they need. Most of a program's time would otherwise go into that, some forty times in a run.

A program that is to need nothing but a Python (`-S`) finds no other package here either.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import io
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from agentdyno.rig.environments.environment import ROOT

_COMMON = ("base64", "hashlib", "json", "pathlib", "re", "sysconfig", "urllib.request")
_OF_THE_RIG = ("msgspec", "agentdyno.record.calibration", "agentdyno.record.manifest")


class PodPython:
    """Use as a context manager."""

    def __enter__(self) -> PodPython:
        self._folder = Path(tempfile.mkdtemp(prefix="pods-"))  # a socket's path must be short
        self._address = str(self._folder / "s")
        own = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        command = [sys.executable, "-m", "tests.cluster.pod_python", self._address]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=own)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=10)  # it ends with its stdin
        shutil.rmtree(self._folder)

    async def run(self, words: Sequence[str]) -> tuple[int, bytes, bytes]:
        """Exit code, stdout and stderr of `python words`; the words are [-S] -c CODE and what it is given."""
        isolated = words[0] == "-S"
        _, code, *given = words[int(isolated) :]
        reader, writer = await asyncio.open_unix_connection(self._address)
        writer.write(json.dumps({"isolated": isolated, "code": code, "given": given}).encode() + b"\n")
        sizes = json.loads(await reader.readline())
        out, err = await reader.readexactly(sizes["out"]), await reader.readexactly(sizes["err"])
        writer.close()
        return sizes["exit_code"], out, err


def serve(address: str) -> None:
    """Fork a process for each program, until stdin ends."""
    for name in (*_COMMON, *_OF_THE_RIG):
        importlib.import_module(name)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen(100)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while sys.stdin not in select.select([server, sys.stdin], [], [])[0]:
            connection, _ = server.accept()
            if os.fork() == 0:
                _answer(connection)
                os._exit(0)
            connection.close()
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _answer(connection: socket.socket) -> None:
    with connection.makefile("rwb") as both:
        asked = json.loads(both.readline())
        if asked["isolated"]:
            _without_packages()
        sys.argv = ["-c", *asked["given"]]
        sys.stdout, sys.stderr = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        code = 0
        try:
            exec(asked["code"], {"__name__": "__main__"})
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
            if isinstance(end.code, str):
                sys.stderr.write(f"{end.code}\n")
        except BaseException:
            traceback.print_exc()
            code = 1
        out, err = (stream.buffer.getvalue() for stream in (sys.stdout, sys.stderr))
        both.write(json.dumps({"exit_code": code, "out": len(out), "err": len(err)}).encode() + b"\n" + out + err)


def _without_packages() -> None:
    sys.path[:] = [path for path in sys.path if Path(path).is_relative_to(sys.base_prefix) and "site-" not in path]
    for name in list(sys.modules):
        if name.partition(".")[0] not in {*sys.stdlib_module_names, "__main__"}:
            del sys.modules[name]


if __name__ == "__main__":
    serve(sys.argv[1])
