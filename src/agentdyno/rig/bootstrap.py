"""Builds the rig's environment with whatever Python the Makefile was given; run as a file, from nothing.

It must be readable by a Python that is too old for the rest, so that the user gets a sentence and no traceback.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 (this is the place that tells an older Python so)
    sys.exit(
        "AgentDyno needs Python 3.11 or newer, and "
        + sys.executable
        + " is "
        + sys.version.split()[0]
        + ". Name another one: make PYTHON=/path/to/python3.11 ..."
    )

import os

try:
    import ensurepip
    import venv
except ImportError as error:
    sys.exit(
        "This Python ("
        + sys.executable
        + ") lacks the module "
        + str(error.name)
        + ", which the set-up needs. On Debian or Ubuntu: apt-get install python3-venv; or name another Python: "
        + "make PYTHON=/path/to/python3.11 ..."
    )
assert ensurepip
assert venv

# As a file it has its own folder first on the path, where our modules could hide the standard library's.
sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from agentdyno.rig.environments import SetupError, ensure, rig_environment

try:
    ensure(rig_environment())
except SetupError as error:
    sys.exit(str(error))
except KeyboardInterrupt:
    sys.stderr.write("Interrupted; the half-made environment is not used and is built anew next time.\n")
    sys.exit(130)
