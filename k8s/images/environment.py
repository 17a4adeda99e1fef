"""Makes what an image holds, within its build stage, with the repository's own builder: the local run's environment.

    python3 k8s/images/environment.py adapter lightagent --lock-sha256 HASH
    python3 k8s/images/environment.py rig --lock-sha256 HASH
    python3 k8s/images/environment.py profiler --lock-sha256 HASH
    python3 k8s/images/environment.py strip

The first three build an environment from a lock with hashes, with its stamp, and compile all code to bytecode that is
never checked against its source again, for in an image neither changes. `strip`, in the final stage, takes the package
tools out of the base's own Python and names the one environment that was copied there /opt/agentdyno/venv. Standard
library only.
"""

import argparse
import compileall
import re
import shutil
import site
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from py_compile import PycInvalidationMode

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))
sys.dont_write_bytecode = True  # importing what follows would write bytecode that is checked, and is kept

from agentdyno.rig.environments.building import ensure  # noqa: E402 (the path first)
from agentdyno.rig.environments.environment import (  # noqa: E402
    Environment,
    SetupError,
    adapter_environment,
    lock_sha256,
    profiler_environment,
    rig_environment,
)

VENV = ROOT / "venv"
# What makes packages and has no business where code only runs. `editables` is how the rig's own package is found.
PACKAGE_TOOLS = ("pip", "setuptools", "wheel", "ensurepip", "_distutils_hack", "distutils-precedence.pth")
_KEPT = {"editables"}


def build(environment: Environment, expected_sha256: str) -> None:
    """The environment, ready to be copied into the final stage. Raises SetupError."""
    found = lock_sha256(environment)
    if expected_sha256 != found:
        raise SetupError(
            f"The image is to be labelled with the lock {expected_sha256[:12] or '(none)'}, but {environment.lock} is "
            f"{found[:12]}. Give --build-arg LOCK_SHA256={found}."
        )
    ensure(environment, PycInvalidationMode.UNCHECKED_HASH)
    for leftover in (environment.log, environment.guard):
        leftover.unlink(missing_ok=True)


def development_tools() -> list[str]:
    """The distributions of pyproject's extra `dev`, which no image needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {re.split(r"[<>=!~;\[ ]", line)[0] for line in project["optional-dependencies"]["dev"]}
    return sorted(names - _KEPT)


def name_environment() -> None:
    """By a link made here: a link that is copied from another stage becomes a second copy of what it points to."""
    (found,) = [folder for folder in (ROOT / ".venv", *(ROOT / ".venvs").glob("*")) if folder.is_dir()]
    VENV.symlink_to(found.relative_to(ROOT))


def remove_package_tools(folder: Path) -> None:
    """Take what PACKAGE_TOOLS names out of a folder of distributions."""
    for entry in folder.iterdir() if folder.is_dir() else ():
        name = entry.name.partition("-")[0] if entry.name.endswith(".dist-info") else entry.name
        if name in PACKAGE_TOOLS:
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()


def remove_pip_programs(folder: Path) -> None:
    """Without its distribution none of them works."""
    for program in folder.glob("pip*"):
        program.unlink()


def main() -> int:
    """0, or 2 with a sentence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("adapter", "rig", "profiler", "strip"))
    parser.add_argument("adapter", nargs="?", help="the adapter's folder")
    parser.add_argument("--lock-sha256", default="", help="what the image is to be labelled with")
    options = parser.parse_args()
    if options.what == "strip":
        paths = sysconfig.get_paths()
        for folder in {paths["purelib"], paths["stdlib"], *site.getsitepackages()}:
            remove_package_tools(Path(folder))
        for folder in {paths["scripts"], Path(sys.executable).parent}:
            remove_pip_programs(Path(folder))
        name_environment()
        return 0
    try:
        if options.what == "rig":
            environment = rig_environment(ROOT)
        elif options.what == "profiler":
            environment = profiler_environment(ROOT)
        elif options.adapter and (ROOT / "adapters" / options.adapter).is_dir():
            environment = adapter_environment(ROOT / "adapters" / options.adapter, ROOT)
        else:
            raise SetupError(f"There is no adapter folder {options.adapter!r}; give --build-arg ADAPTER=lightagent.")
        build(environment, options.lock_sha256)
        modes = PycInvalidationMode.UNCHECKED_HASH
        if options.what == "profiler":
            # Its environment does not lead to our sources, so they were not compiled with it.
            compileall.compile_dir(ROOT / "src", quiet=2, invalidation_mode=modes)
        if options.what == "rig":
            pip = [str(environment.python), "-m", "pip", "uninstall", "--yes", "--quiet"]
            subprocess.run([*pip, *development_tools()], check=True)
            remove_package_tools(environment.site_packages)
            remove_pip_programs(environment.path / "bin")
            compileall.compile_dir(ROOT / "locustfiles", quiet=2, invalidation_mode=modes)
    except SetupError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
