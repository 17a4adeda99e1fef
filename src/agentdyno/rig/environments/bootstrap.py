"""Builds the rig's environment with whatever Python the Makefile was given; run as a file, from nothing.

A Python that is too old for the rest must still be able to read it, so that the user gets a sentence, no traceback.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 (this is the place that tells an older Python so)
    sys.stderr.write(
        "AgentDyno needs Python 3.11 or newer, and "
        + sys.executable
        + " is "
        + sys.version.split()[0]
        + ". Name another one: make PYTHON=/path/to/python3.11 ...\n"
    )
    sys.exit(2)

import importlib.util

for module in ("venv", "ensurepip"):
    if importlib.util.find_spec(module) is None:
        sys.stderr.write(
            "This Python ("
            + sys.executable
            + ") lacks the module "
            + module
            + ", which the set-up needs. On Debian or Ubuntu: apt-get install python3-venv; or name another Python: "
            + "make PYTHON=/path/to/python3.11 ...\n"
        )
        sys.exit(2)

# As a file it has its own folder first on the path, where our modules could hide the standard library's.
sys.path[0] = __file__.partition("agentdyno/rig/environments/bootstrap.py")[0] or "."

from agentdyno.rig.environments.building import ensure  # noqa: E402 (not before the checks)
from agentdyno.rig.environments.environment import SetupError, rig_environment  # noqa: E402

try:
    ensure(rig_environment())
except SetupError as error:
    sys.stderr.write(str(error) + "\n")
    sys.exit(2)
except KeyboardInterrupt:
    sys.stderr.write("Interrupted; the half-made environment is not used and is built anew next time.\n")
    sys.exit(130)
