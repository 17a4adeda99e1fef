"""podman with a folder, a network namespace and control groups of its own, so that nothing of it is left afterwards."""

from __future__ import annotations

import json
import os
import re
import resource
import secrets
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from tests.k8s.programs import ROOT

PROGRAMS = ("podman", "runc", "mmdebstrap", "iptables", "nsenter", "unshare")
HELPERS = {
    "netavark": ("/usr/lib/podman/netavark",),
    "catatonit": ("/usr/bin/catatonit", "/usr/libexec/podman/catatonit"),
}
SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
SUITE = "bookworm"
# Of its own, because root that lacks CAP_SYS_RESOURCE may not raise what podman would raise.
_CONTAINERS = """
[containers]
default_ulimits = ["nofile={nofile}:{nofile}", "nproc={nproc}:{nproc}"]
log_driver = "k8s-file"
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "runc"
tmp_dir = "{folder}/tmp"
"""
_STORAGE = """
[storage]
driver = "overlay"
graphroot = "{folder}/storage"
runroot = "{folder}/running"
"""
_CGROUPS = Path("/sys/fs/cgroup")


def why_not() -> str:
    """What is missing here for containers; empty when nothing is."""
    if os.geteuid() != 0:
        return "containers with limits are started as root"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    missing += [name for name, places in HELPERS.items() if not any(Path(place).exists() for place in places)]
    if missing:
        return f"these are not installed: {', '.join(missing)}"
    if not SOURCES.exists():
        return f"the base is made from Debian's packages, and {SOURCES} is not there"
    return _refused()


@cache
def _refused() -> str:
    """What the kernel or whoever guards this machine does not let root do, of what any container needs."""
    needs = "mount -t proc proc /proc && mount -t tmpfs tmpfs /mnt && ip link set lo up"
    tried = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--fork", "sh", "-c", needs],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        return f"this machine lets root start no containers: {' '.join(tried.stderr.split()) or tried.returncode}"
    try:
        group = next(_CGROUPS.glob("memory"), _CGROUPS) / f"agentdyno-test-{os.getpid()}"
        group.mkdir()
        group.rmdir()
    except OSError as error:
        return f"this machine lets root make no control groups: {error}"
    return ""


class Engine:
    """podman. folder: an empty one, for all that it keeps. Use as a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cgroup = f"agentdyno-test-{os.getpid()}-{secrets.token_hex(2)}"
        self.network = "pods"
        self._namespace = folder / "network"

    def __enter__(self) -> Engine:
        limits = {"nofile": _at_most(resource.RLIMIT_NOFILE, 8192), "nproc": _at_most(resource.RLIMIT_NPROC, 16384)}
        (self.folder / "containers.conf").write_text(_CONTAINERS.format(folder=self.folder, **limits))
        (self.folder / "storage.conf").write_text(_STORAGE.format(folder=self.folder))
        self._groups = {path.parent for path in _CGROUPS.glob("*/libpod_parent")}
        (self.folder / "build").mkdir()
        self._namespace.touch()
        subprocess.run(["unshare", f"--net={self._namespace}", "ip", "link", "set", "lo", "up"], check=True)
        try:
            # Names are in each pod's hosts file: no server of names is started.
            self("network", "create", "--disable-dns", "--subnet", "10.213.0.0/24", self.network)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Each step by itself, so that one that fails keeps none of the others from being done."""
        steps = (("pod", "rm", "--all", "--force", "--time", "0"), ("rm", "--all", "--force", "--time", "0"))
        for step in (*steps, ("network", "rm", "--force", self.network), ("rmi", "--all", "--force")):
            self(*step, check=False)
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in sorted((m for m in mounts if m.startswith(f"{self.folder}/")), reverse=True):
            subprocess.run(["umount", "--lazy", mount], check=False)
        own = [*_CGROUPS.glob(self.cgroup), *_CGROUPS.glob(f"*/{self.cgroup}")]
        own += [path for path in _CGROUPS.glob("*/libpod_parent") if path.parent not in self._groups]
        for top in own:
            for group in sorted((path for path in [top, *top.rglob("*")] if path.is_dir()), reverse=True):
                group.rmdir()
        shutil.rmtree(self.folder)

    def __call__(self, *words: str, check: bool = True, text: bool = True, timeout_s: float = 120) -> Any:
        """Run it in the network namespace of the pods. Raises AssertionError with what it said when it fails."""
        command = [*self.inside, "podman", *words]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=text, timeout=timeout_s, check=False
        )
        assert not check or done.returncode == 0, f"podman {' '.join(words[:6])}: {done.stderr}"
        return done

    def json(self, *words: str) -> Any:
        return json.loads(self(*words).stdout)

    @property
    def inside(self) -> list[str]:
        """What a command begins with that runs in the network namespace of the pods."""
        return ["nsenter", f"--net={self._namespace}"]

    @property
    def environment(self) -> dict[str, str]:
        """For a program that calls podman."""
        files = {"CONTAINERS_CONF": "containers.conf", "CONTAINERS_STORAGE_CONF": "storage.conf"}
        own = {name: str(self.folder / file) for name, file in files.items()}
        # What podman builds, and what a build keeps for the next one, is in here as well.
        return {**os.environ, **own, "TMPDIR": str(self.folder / "build"), "TOOL": "podman"}

    def ask(self, url: str, timeout_s: float = 2) -> str | None:
        """The body of a 200, as a node's kubelet would get it; None for anything else."""
        code = (
            "import sys, urllib.request as r; o = r.build_opener(r.ProxyHandler({}));"
            "sys.stdout.write(o.open(sys.argv[1], timeout=float(sys.argv[2])).read().decode())"
        )
        command = [*self.inside, sys.executable, "-S", "-c", code, url, str(timeout_s)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s + 30, check=False)
        return done.stdout if done.returncode == 0 else None

    # images, over the machine's own network

    def make_base(self) -> None:
        """From Debian's packages, by the sources that this machine's apt has."""
        subprocess.run([ROOT / "k8s" / "images" / "base", SOURCES], env=self.environment | {"SUITE": SUITE}, check=True)

    def build(self, what: str) -> None:
        """`k8s/images/build WHAT`, with this machine's settings of pip for the time of the build."""
        settings, paths = pip_settings()
        file = self.folder / f"{what.replace(' ', '-')}.pip.conf"  # there may be several builds at a time
        file.write_text(settings)
        bases = {"BASE": "base-build", "RUNTIME_BASE": "base"}
        arguments = [
            *(f"--build-arg {name}=localhost/agentdyno/{image}:{SUITE}" for name, image in bases.items()),
            *(f"--volume {path}:{path}:ro" for path in paths),
            f"--secret id=pip.conf,src={file} --network host --layers=false --cgroup-parent /{self.cgroup}",
        ]
        environment = self.environment | {"BUILD_ARGS": " ".join(arguments)}
        subprocess.run([ROOT / "k8s" / "images" / "build", *what.split()], env=environment, check=True)

    def build_with(self, image: str, program: Path) -> None:
        """The base with one program of this machine, which is what the image starts."""
        context = self.folder / "context"
        context.mkdir()
        shutil.copy(program, context)
        lines = (f"FROM localhost/agentdyno/base:{SUITE}", f"COPY {program.name} /bin/", "USER 10001:10001")
        lines += (f'ENTRYPOINT ["/bin/{program.name}"]',)
        (context / "Containerfile").write_text("\n".join(lines))
        self("build", "--layers=false", "--cgroup-parent", f"/{self.cgroup}", "--tag", image, str(context))
        shutil.rmtree(context)


def pip_settings() -> tuple[str, list[str]]:
    """What pip is told on this machine, by variables and files, as one file; and the paths that it names."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = dict(match.groups() for match in re.finditer(r"(?m)^(?:global|site|user|install)\.([a-z-]+)='(.*)'$", said))
    found |= dict(match.groups() for match in re.finditer(r"(?m)^:env:\.([a-z-]+)='(.*)'$", said))
    words = [word for value in found.values() for word in value.replace("\\n", " ").split()]
    # An index in a folder refers to files beside it.
    paths = [Path(word.removeprefix("file://")).parent for word in words if word.startswith("file:///")]
    paths += [Path(word) for word in words if word.startswith("/")]
    lines = [f"{name} = {value.replace(chr(92) + 'n', ' ')}" for name, value in found.items()]
    return "\n".join(["[global]", *lines, ""]), sorted({str(path) for path in paths if path.exists()})


def _at_most(number: int, wanted: int) -> int:
    """Of a limit of this process, which may not be raised."""
    hard = resource.getrlimit(number)[1]
    return wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
