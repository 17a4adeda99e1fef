"""What happens to the pods of a run while it goes on: by their own states, looked at again and again.

Nothing is missed between two looks, or while the API is not to be reached: a pod that was replaced has another UID, a
container that was started anew another count, and one that was ended says how.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from agentdyno.cluster.objects import COMPLETION_INDEX, Pod, Terminated
from agentdyno.contract.run import Finding, Reason
from agentdyno.load.records import DISK_FULL_EXIT

SERVERS = ("sut", "backend", "recorder")
MASTER, WORKER = "load-master", "load-worker"
LOCUST = "locust"
ENDED = ("Failed", "Succeeded")  # phases of a pod of which no container runs, so that its files are gone
# Of a container that the load's end does not stop, and that is looked at.
_DISRUPTION = "DisruptionTarget"


class Known(msgspec.Struct, frozen=True):
    """A pod of the run as it was when the run began. restarts: of its containers, by name."""

    name: str
    uid: str
    component: str
    restarts: dict[str, int]


def known(pods: Sequence[Pod]) -> list[Known]:
    """What is to be the same at the end."""
    return [
        Known(
            pod.name, pod.metadata.uid, pod.component, {c.name: c.restart_count for c in pod.status.container_statuses}
        )
        for pod in pods
    ]


def disturbances(servers: Sequence[Known], now: Sequence[Pod]) -> list[Finding]:
    """What befell the servers of a run: each a reason for which it is invalid. None of it is undone by a restart."""
    by_uid = {pod.metadata.uid: pod for pod in now}
    found: list[Finding] = []
    for was in servers:
        pod = by_uid.get(was.uid)
        if pod is None:
            text = f"The {was.component}'s pod {was.name} is gone: evicted, deleted, or its node is."
            found.append(Finding(Reason.POD_EVICTED, text))
            continue
        found += _removed(pod)
        found += _restarted(was, pod)
    return found


def lost_load(pods: Sequence[Pod], seen: Sequence[str], workers: int) -> list[Finding]:
    """Load pods that failed or are no longer there. seen: names of those that there have been."""
    there = {pod.name for pod in pods}
    found = [
        Finding(Reason.GENERATOR_DIED, f"The load's pod {name} is gone: evicted, deleted, or its node is.")
        for name in seen
        if name not in there
    ]
    for pod in load_pods(pods):
        found += _removed(pod)
        ended = pod.ended(LOCUST)
        if ended is not None and ended.exit_code:
            found.append(_failed(pod, ended, workers))
    return found


def load_pods(pods: Sequence[Pod]) -> list[Pod]:
    """Master and workers, those by their index."""
    return sorted(
        (pod for pod in pods if pod.component in (MASTER, WORKER)), key=lambda pod: (pod.component, _index(pod))
    )


def load_ended(pods: Sequence[Pod], workers: int) -> bool:
    """Have the master and all workers come to their end, well or not?"""
    ended = [pod for pod in load_pods(pods) if pod.ended(LOCUST) is not None]
    return len(ended) == workers + 1


def load_running(pods: Sequence[Pod], workers: int) -> bool:
    """Have they all been started?"""
    begun = [pod for pod in load_pods(pods) if _begun(pod)]
    return len(begun) == workers + 1


def why_not_started(pods: Sequence[Pod]) -> str:
    """What holds the load's pods up, by their own word."""
    for pod in load_pods(pods):
        scheduled = pod.condition("PodScheduled")
        if scheduled is not None and scheduled.status == "False":
            return f"{pod.name}: {scheduled.message or scheduled.reason}."
        for container in pod.status.container_statuses:
            if (waiting := container.state.waiting) is not None and waiting.reason:
                return f"{pod.name}, {container.name}: {waiting.reason} {waiting.message or ''}".rstrip() + "."
    return f"There are {len(load_pods(pods))} pods of it."


def _removed(pod: Pod) -> Iterator[Finding]:
    reason = Reason.POD_EVICTED if pod.component in SERVERS else Reason.GENERATOR_DIED
    disrupted = pod.condition(_DISRUPTION)
    if disrupted is not None and disrupted.status == "True":
        why = disrupted.message or disrupted.reason or "disrupted"
    elif pod.status.phase == "Failed" and pod.status.reason:
        why = f"{pod.status.reason}: {pod.status.message or 'no more is said'}"
    elif pod.metadata.deletion_timestamp is not None:
        why = "it is being deleted"
    else:
        return
    yield Finding(reason, f"The {pod.component}'s pod {pod.name} was taken from the run ({why.rstrip('.')}).")


def _restarted(was: Known, pod: Pod) -> Iterator[Finding]:
    for container in pod.status.container_statuses:
        more = container.restart_count - was.restarts.get(container.name, 0)
        ended = container.state.terminated or (container.last_state.terminated if more > 0 else None)
        if more <= 0 and ended is None:
            continue
        who = f"The container {container.name} of the {was.component}'s pod {pod.name}"
        how = "was started anew" if ended is None else ended.describe()
        if ended is not None and ended.out_of_memory:
            text = f"{who} was killed at its memory limit: {how}. Give it more memory, or less to do."
            yield Finding(Reason.OOM_KILLED, text)
        else:
            again = f" and was started anew {more} times" if more > 1 else ""
            yield Finding(Reason.POD_RESTARTED, f"{who} {how}{again} in the middle of the run.")


def _failed(pod: Pod, ended: Terminated, workers: int) -> Finding:
    who = "The load's master" if pod.component == MASTER else f"Load worker {_index(pod)} of {workers}"
    if ended.exit_code == DISK_FULL_EXIT:
        return Finding(Reason.DISK_FULL, f"{who} could not write its records: raise load.storage of the chart.")
    limit = " Raise load.worker.resources.memory of the chart, or take more WORKERS." if ended.out_of_memory else ""
    return Finding(Reason.GENERATOR_DIED, f"{who} {ended.describe()}.{limit}")


def _index(pod: Pod) -> int:
    return int(pod.metadata.labels.get(COMPLETION_INDEX, "0"))


def _begun(pod: Pod) -> bool:
    status = pod.container(LOCUST)
    return status is not None and (status.state.running is not None or status.state.terminated is not None)
