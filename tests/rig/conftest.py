"""A checkout in miniature whose one adapter needs one tiny distribution, built here: no network."""

import base64
import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentdyno.rig.environments.environment import Environment, adapter_environment


@dataclass(frozen=True)
class Checkout:
    root: Path
    wheels: Path

    @property
    def folder(self) -> Path:
        return self.root / "adapters" / "tiny"

    @property
    def environment(self) -> Environment:
        return adapter_environment(self.folder, self.root)

    def lock(self, version: str, digest: str | None = None) -> None:
        """Lock `tinydist` at a version, with its true hash unless another is given."""
        wheel = make_wheel(self.wheels, "tinydist", version)
        digest = digest or hashlib.sha256(wheel.read_bytes()).hexdigest()
        pin = f"tinydist=={version} ; python_full_version >= '3.11' \\\n    --hash=sha256:{digest}\n"
        (self.folder / "requirements.lock").write_text(pin)


def make_wheel(folder: Path, name: str, version: str) -> Path:
    files = {
        f"{name}/__init__.py": f"VERSION = {version!r}\n",
        f"{name}-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{name}-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\n"
        "Root-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = f"{name}-{version}.dist-info/RECORD"
    lines = [
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip('=')},{len(text)}"
        for path, text in files.items()
    ]
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**files, record: "\n".join([*lines, f"{record},,"]) + "\n"}.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return wheel


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    made = Checkout(tmp_path / "checkout", tmp_path / "wheels")
    made.wheels.mkdir()
    (made.root / "src" / "agentdyno").mkdir(parents=True)
    (made.root / "src" / "agentdyno" / "__init__.py").write_text("MARK = 'ours'\n")
    made.folder.mkdir(parents=True)
    (made.folder / "adapter.py").write_text("VALUE = 1\n")
    made.lock("1.0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(made.wheels))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return made
