"""For all tests: Locust is imported without its monkey-patching, which would turn this process's sockets, threads
and clocks into gevent's under every other test. Processes that tests start are patched as they always are.
"""

import os

os.environ["LOCUST_SKIP_MONKEY_PATCH"] = "1"
import locust  # noqa: F401

del os.environ["LOCUST_SKIP_MONKEY_PATCH"]
