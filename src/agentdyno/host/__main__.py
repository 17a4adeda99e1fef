"""Entry of `python -m agentdyno.host`."""

import sys

from agentdyno.host.serve import main

sys.exit(main())
