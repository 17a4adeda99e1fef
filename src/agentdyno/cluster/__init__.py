"""The same run on Kubernetes: the chart's pods driven from outside, and their records fetched into a run folder."""
