"""python -m grafana.source, from the checkout: write the dashboards' JSON."""

import sys

from grafana.source.build import write

for file in write():
    sys.stdout.write(f"{file}\n")
