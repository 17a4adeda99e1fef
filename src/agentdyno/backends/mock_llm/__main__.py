"""`python -m agentdyno.backends.mock_llm`."""

import sys

from agentdyno.backends.mock_llm.cli import main

sys.exit(main())
