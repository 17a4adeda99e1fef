"""The small programs that run in a run's containers: to read files, to ask a server, to look at a clock.

They need nothing but a Python, and each may be run twice. What it found is on stdout; what it says of itself is on
stderr, as JSON.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from time import monotonic_ns

import msgspec

from agentdyno.cluster.kube import Kube, KubeError, Ran
from agentdyno.record.calibration import Calibration

_CHUNK_BYTES = 8 << 20
_READS = 3  # a stream may end early and yet say that all went well
_LIST = """
import json, os, sys
names = os.listdir(sys.argv[1]) if os.path.isdir(sys.argv[1]) else []
sys.stdout.write(json.dumps({n: os.path.getsize(os.path.join(sys.argv[1], n)) for n in names}))
"""
_READ = """
import hashlib, json, sys
with open(sys.argv[1], "rb") as file:
    file.seek(int(sys.argv[2]))
    part = file.read(int(sys.argv[3]))
sys.stdout.buffer.write(part)
sys.stdout.flush()
sys.stderr.write(json.dumps({"sha256": hashlib.sha256(part).hexdigest()}))
"""
_ASK = """
import base64, hashlib, json, sys, time, urllib.error, urllib.request
method, url, timeout_s, body = sys.argv[1:5]
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
request = urllib.request.Request(url, data=base64.b64decode(body) or None, method=method)
request.add_header("content-type", "application/json")
begin, status, answer, said = time.monotonic(), None, b"", ""
try:
    with opener.open(request, timeout=float(timeout_s)) as response:
        status, answer = response.status, response.read()
except urllib.error.HTTPError as error:
    status, answer = error.code, error.read()
except OSError as error:
    said = str(error)
ms, digest = (time.monotonic() - begin) * 1000, hashlib.sha256(answer).hexdigest()
sys.stdout.buffer.write(answer)
sys.stdout.flush()
sys.stderr.write(json.dumps({"status": status, "ms": ms, "error": said, "sha256": digest}))
"""
_HASHES = """
import hashlib, json, os, sys
found, root = {}, sys.argv[1]
for folder, _, names in os.walk(root):
    for name in names:
        if name.endswith(tuple(sys.argv[2:])):
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, root)] = hashlib.sha256(file.read()).hexdigest()
sys.stdout.write(json.dumps(found))
"""
_NAMES = """
import json, pathlib, re, sys, sysconfig
names, pattern = {}, re.compile(sys.argv[1], re.MULTILINE)
for metadata in pathlib.Path(sysconfig.get_path("purelib")).glob("*.dist-info"):
    if (metadata / "RECORD").is_file():
        names[metadata.name.partition("-")[0]] = sorted(set(pattern.findall((metadata / "RECORD").read_text("utf-8"))))
sys.stdout.write(json.dumps(names))
"""
_CALIBRATE = """
import sys, msgspec
from agentdyno.record.calibration import calibrated
sys.stdout.buffer.write(msgspec.json.encode(calibrated()))
"""
# What a measured program is made of, by the ends of names: its code, and what an adapter says of itself.
SOURCES = (".py", ".toml")
_CLOCK = "import sys, time; sys.stdout.write(str(time.monotonic_ns()))"
_END = "import os, signal; os.kill(1, signal.SIGTERM)"


class _Digest(msgspec.Struct, frozen=True):
    sha256: str


class Asked(msgspec.Struct, frozen=True):
    """How a request within a pod went. status None: no answer, for the reason that `error` gives."""

    status: int | None
    ms: float
    error: str = ""
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """A pod's monotonic clock, looked at between two moments of our own; neither is ever taken for the other."""

    there_ns: int
    before_ns: int
    after_ns: int


@dataclass(frozen=True, slots=True)
class Container:
    """A container of a run, and what can be done in it."""

    kube: Kube
    pod: str
    name: str

    def files(self, folder: str) -> dict[str, int]:
        """The sizes of a folder's files, bytes; none where it is not there."""
        return msgspec.json.decode(self._python(_LIST, folder), type=dict[str, int])

    def read(self, path: str) -> bytes:
        """A small file, whole."""
        return self._part(path, 0, _CHUNK_BYTES)

    def sources(self, folder: str) -> dict[str, str]:
        """The hash of each SOURCES file below a folder, by its path there."""
        return msgspec.json.decode(self._python(_HASHES, folder, *SOURCES), type=dict[str, str])

    def fetch(self, path: str, size: int, into: Path) -> None:
        """Bring the first `size` bytes of a file here, in chunks that are each checked by their hash.

        What is in `into` already is a beginning that an earlier attempt left, and is gone on from.
        """
        with into.open("ab") as out:
            at = out.tell()
            if at > size:
                raise KubeError(f"{into} is longer than {path} in the pod {self.pod}: it is of another run.")
            while at < size:
                part = self._part(path, at, min(_CHUNK_BYTES, size - at))
                if not part:
                    raise KubeError(f"{path} in the pod {self.pod} ends at {at} of {size} bytes.")
                out.write(part)
                out.flush()
                at += len(part)

    def ask(self, url: str, *, timeout_s: float, method: str = "GET", body: bytes = b"") -> tuple[Asked, bytes]:
        """One HTTP request from within the pod, where nothing is between it and the server."""
        words = (method, url, f"{timeout_s:g}", base64.b64encode(body).decode())
        ran = self.kube.run(self.pod, self.name, ["python", "-c", _ASK, *words], timeout_s + 30.0)
        try:
            return msgspec.json.decode(ran.stderr, type=Asked), ran.stdout
        except msgspec.MsgspecError as error:
            raise KubeError(f"The pod {self.pod} could not ask {url}: {_tail(ran.stderr)}") from error

    def offered(self, url: str, timeout_s: float) -> bytes | None:
        """The body, whole by its hash; None where there is no such address. Raises OSError when there is no good
        answer.
        """
        for _ in range(_READS):
            asked, body = self.ask(url, timeout_s=timeout_s)
            if asked.sha256 == sha256(body).hexdigest():
                break
        else:
            raise OSError(f"the answer of {url} came {_READS} times, and never as it was sent")
        if asked.status in (HTTPStatus.NOT_FOUND, HTTPStatus.NOT_IMPLEMENTED):
            return None
        if asked.status != HTTPStatus.OK:
            raise OSError(asked.error or f"status {asked.status}")
        return body

    def mark(self) -> Mark:
        """Look at the pod's clock: the quickest of three looks."""
        looks = []
        for _ in range(3):
            before_ns = monotonic_ns()
            there_ns = int(self._python(_CLOCK))
            looks.append(Mark(there_ns, before_ns, monotonic_ns()))
        return min(looks, key=lambda mark: mark.after_ns - mark.before_ns)

    def import_names(self, pattern: str) -> dict[str, list[str]]:
        """What each distribution of its environment brings, by its name. pattern: of a name in a RECORD."""
        ran = self._ran(_NAMES, pattern, isolated=False)
        return msgspec.json.decode(ran.stdout, type=dict[str, list[str]])

    def calibrated(self) -> Calibration:
        """Run the calibration loop there."""
        return msgspec.json.decode(self.python(_CALIBRATE), type=Calibration)

    def end(self) -> None:
        """SIGTERM to its first process."""
        self._python(_END)

    def python(self, code: str) -> bytes:
        """What a program of the rig's own environment prints."""
        return self._ran(code, isolated=False).stdout

    def _part(self, path: str, at: int, size: int) -> bytes:
        for _ in range(_READS):
            ran = self._ran(_READ, path, str(at), str(size))
            if msgspec.json.decode(ran.stderr, type=_Digest).sha256 == sha256(ran.stdout).hexdigest():
                return ran.stdout
        raise KubeError(
            f"{path} came from the pod {self.pod} {_READS} times, and never as it was sent: fetch it again."
        )

    def _python(self, code: str, *words: str) -> bytes:
        return self._ran(code, *words).stdout

    def _ran(self, code: str, *words: str, isolated: bool = True) -> Ran:
        command = ["python", *(["-S"] if isolated else []), "-c", code, *words]
        ran = self.kube.run(self.pod, self.name, command)
        if ran.exit_code:
            raise KubeError(f"In the container {self.name} of {self.pod}: {_tail(ran.stderr)}")
        return ran


def _tail(said: bytes) -> str:
    lines = said.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:300] if lines else "no reason given"
