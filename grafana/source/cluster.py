"""Cluster: the same run on Kubernetes."""

from grafana.source.panel import CLUSTER_ONLY, Board, Kind, Panel, Query, Row, Variable

_IN = 'namespace=~"$namespace"'
_CONTAINER = f'{_IN}, container!="", container!="POD"'


def _panel(title: str, description: str, unit: str, *queries: Query, kind: Kind = Kind.LINES) -> Panel:
    return Panel(title, description, unit, queries, kind, elsewhere=CLUSTER_ONLY)


_PODS = Row(
    "Pods",
    (
        _panel(
            "Pods by phase",
            "Pending pods wait for a node; a failed load generator ends a run.",
            "none",
            Query(f"sum by (phase) (kube_pod_status_phase{{{_IN}}})", "{{phase}}"),
            kind=Kind.STACK,
        ),
        _panel(
            "Restarts",
            "Containers that were started again in the last five minutes. A host that restarts makes the run invalid.",
            "none",
            Query(f"sum by (pod) (increase(kube_pod_container_status_restarts_total{{{_IN}}}[5m]))", "{{pod}}"),
        ),
        _panel(
            "Why containers wait or ended",
            "OOMKilled: above the memory limit. CrashLoopBackOff: it does not start.",
            "none",
            Query(f"sum by (pod, reason) (kube_pod_container_status_waiting_reason{{{_IN}}})", "{{pod}}: {{reason}}"),
            Query(
                f"sum by (pod, reason) (kube_pod_container_status_last_terminated_reason{{{_IN}}})",
                "{{pod}}: {{reason}}",
            ),
        ),
    ),
)
_CPU = Row(
    "CPU",
    (
        _panel(
            "Throttling",
            "Share of the scheduler's periods in which a container was stopped at its CPU limit. A host must show 0.",
            "percentunit",
            Query(
                f"sum by (pod) (rate(container_cpu_cfs_throttled_periods_total{{{_CONTAINER}}}[$__rate_interval]))"
                f" / sum by (pod) (rate(container_cpu_cfs_periods_total{{{_CONTAINER}}}[$__rate_interval]))",
                "{{pod}}",
            ),
        ),
        _panel(
            "CPU by pod",
            "Cores in use.",
            "none",
            Query(
                f"sum by (pod) (rate(container_cpu_usage_seconds_total{{{_CONTAINER}}}[$__rate_interval]))", "{{pod}}"
            ),
        ),
        _panel(
            "Stopped for CPU",
            "Seconds of each second that a container's threads were held back.",
            "s",
            Query(
                f"sum by (pod) (rate(container_cpu_cfs_throttled_seconds_total{{{_CONTAINER}}}[$__rate_interval]))",
                "{{pod}}",
            ),
        ),
    ),
)
_MEMORY = Row(
    "Memory and nodes",
    (
        _panel(
            "Memory by pod",
            "Working set: what counts against the limit.",
            "bytes",
            Query(f"sum by (pod) (container_memory_working_set_bytes{{{_CONTAINER}}})", "{{pod}}"),
        ),
        _panel(
            "Memory, share of the limit",
            "Near 1 the kernel ends the container.",
            "percentunit",
            Query(
                f"sum by (pod) (container_memory_working_set_bytes{{{_CONTAINER}}})"
                f' / sum by (pod) (kube_pod_container_resource_limits{{{_IN}, resource="memory"}})',
                "{{pod}}",
            ),
        ),
        _panel(
            "Nodes",
            "Nodes that are ready, and those under pressure.",
            "none",
            Query('sum(kube_node_status_condition{condition="Ready", status="true"})', "ready"),
            Query(
                'sum by (condition) (kube_node_status_condition{condition=~".*Pressure", status="true"})',
                "{{condition}}",
            ),
        ),
    ),
)

BOARD = Board(
    "agentdyno-cluster",
    "AgentDyno: Cluster",
    "The same run on Kubernetes: pods, nodes, throttling, restarts. Needs kube-state-metrics and cAdvisor.",
    (_PODS, _CPU, _MEMORY),
    (Variable("namespace", "Where AgentDyno was installed.", "label_values(kube_pod_info, namespace)"),),
)
