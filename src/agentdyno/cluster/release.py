"""The chart's release: installed, asked for its values, changed for a run, removed. By helm, which knows it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentdyno.contract.errors import UserError
from agentdyno.rig.environments.environment import ROOT

CHART = ROOT / "k8s" / "chart"
HELM_VARIABLE = "HELM"
_NO_RELEASE = "release: not found"


class HelmError(UserError):
    """helm is not there, or refused; the text is what it said, and what to do."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a release is. context: of the kubeconfig; None: its current one."""

    release: str
    namespace: str
    context: str | None = None

    def name(self, component: str) -> str:
        """Of the Service and Deployment of a component, as the chart makes it."""
        return f"{self.release}-{component}"


@dataclass(frozen=True, slots=True)
class Release:
    """A release of the chart, which need not be there yet."""

    place: Place
    chart: Path = CHART

    def install(self, values: Sequence[Path], timeout_s: float) -> str:
        """Install it, or bring it to the chart and values of now, and wait until it is ready: the chart's notes.

        Raises HelmError.
        """
        said = self._helm(*self._installing(values), "--wait", "--timeout", f"{timeout_s:.0f}s")
        return said.partition("NOTES:\n")[2].strip()

    def start_s(self, values: Sequence[Path]) -> float:
        """How long its slowest part may take to start, installed with these values. Raises HelmError.

        As helm would install it, because helm alone knows what it makes of files and of the values of a release.
        """
        planned = json.loads(self._helm(*self._installing(values), "--dry-run=client", "-o", "json"))
        found = re.findall(r"(?m)^ *progressDeadlineSeconds: ([0-9]+)$", planned["manifest"])
        return max(float(seconds) for seconds in found)

    def _installing(self, values: Sequence[Path]) -> list[str]:
        files = [word for file in values for word in ("-f", str(file))]
        return ["upgrade", "--install", self.place.release, str(self.chart), "--create-namespace", *files]

    def values(self) -> dict[str, Any]:
        """All values that it has, the chart's own too. Raises HelmError when there is none."""
        found: dict[str, Any] = json.loads(self._helm("get", "values", self.place.release, "--all", "-o", "json"))
        return found

    def change(self, values: dict[str, Any], wait_s: float | None = None) -> None:
        """Set these values and leave the others that it was given. wait_s: until all is ready, at most so long.

        All its values go in anew: helm's own --reuse-values would lay the new maps over the old ones, and so keep a
        tool's latency that the run before had. Raises HelmError.
        """
        wait = () if wait_s is None else ("--wait", "--timeout", f"{wait_s:.0f}s")
        given = json.loads(self._helm("get", "values", self.place.release, "-o", "json")) or {}
        with tempfile.TemporaryDirectory(prefix="agentdyno-") as folder:
            file = Path(folder) / "values.json"
            file.write_text(json.dumps(_over(given, values)), encoding="utf-8")
            # What an upgrade made before it failed is in no manifest that a later one compares with: it would stay.
            how = ("--reset-values", "--cleanup-on-fail", "-f", str(file))
            self._helm("upgrade", self.place.release, str(self.chart), *how, *wait)

    def remove(self) -> None:
        """Uninstall it and wait until its objects are gone; nothing happens when there is none. Raises HelmError."""
        self._helm("uninstall", self.place.release, "--ignore-not-found", "--wait")

    def _helm(self, *words: str) -> str:
        place = self.place
        program = os.environ.get(HELM_VARIABLE) or shutil.which("helm")
        if program is None:
            raise HelmError(
                "There is no helm on the PATH. Install helm 3.14 or newer, or name the program with HELM=/path/to/helm."
            )
        where = ["--namespace", place.namespace, *(["--kube-context", place.context] if place.context else [])]
        code, out, err = _run([program, *words, *where])
        if code == 0:
            return out
        said = " ".join(err.split()) or f"exit code {code}"
        if _NO_RELEASE in said:
            raise HelmError(
                f"There is no release {place.release} in the namespace {place.namespace}. "
                "Install it: make cluster-install"
            )
        raise HelmError(f"helm {words[0]} failed: {said[:800]}")


def _run(command: Sequence[str]) -> tuple[int, str, str]:
    """Exit code, stdout, stderr. An interruption ends helm by SIGTERM, on which it says in the release that it was cut
    off; killed, it would leave one that it refuses to change ever after.
    """
    pipe = subprocess.PIPE
    try:
        # A process group of its own, so that Ctrl-C does not reach it in another way.
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as helm:
            try:
                out, err = helm.communicate()
            except BaseException:
                helm.terminate()
                helm.communicate()
                raise
    except OSError as error:
        raise HelmError(f"{command[0]} cannot be started: {error.strerror}.") from error
    return helm.returncode, out, err


def _over(given: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Those of a run over those that a person gave: section by section, and what a section holds as a whole."""
    merged = dict(given)
    for name, value in values.items():
        old = given.get(name)
        merged[name] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
