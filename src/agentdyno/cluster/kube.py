"""The Kubernetes API as a run needs it: a few reads, and programs run in containers, each tried until it answers.

Everything here can be asked again without harm, so a broken connection, a 500 or a time-out is met by asking again,
for `patience_s`. What a reader can mend (no kubeconfig, no rights, no such object) is a sentence at once.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
import urllib3
import websocket
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException
from kubernetes.stream import stream

from agentdyno.cluster.objects import Node, Pod, PodList, SecretData
from agentdyno.contract.errors import UserError

PATIENCE_S = 60.0
_CONNECT_S, _READ_S = 5.0, 20.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
_STDOUT, _STDERR, _STATUS = 1, 2, 3
_HANDSHAKE = re.compile(r"Handshake status (\d{3})")
_Answer = TypeVar("_Answer")


class KubeError(UserError):
    """What the API refuses, or what is not there; the text says what, and what to do."""


class NotThere(KubeError):
    """The object does not exist (any more)."""


class ApiLost(Exception):
    """The API did not answer for longer than a run can wait; the text says what was asked and what came back."""


class _Broken(Exception):
    """A stream that ended before it had said how."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a program in a container left."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class Kube:
    """One namespace of a cluster. patience_s: how long an answer is waited for, all attempts together."""

    def __init__(self, api: client.ApiClient, namespace: str, patience_s: float | None = None) -> None:
        self.namespace = namespace
        self._core = client.CoreV1Api(api)
        self._patience_s = PATIENCE_S if patience_s is None else patience_s

    @classmethod
    def connect(cls, namespace: str, context: str | None = None, patience_s: float | None = None) -> Kube:
        """By the kubeconfig ($KUBECONFIG, ~/.kube/config), or in a pod by its own account. Raises KubeError."""
        websocket.setdefaulttimeout(_READ_S)
        settings = client.Configuration()
        by_file: Any = config.load_kube_config  # neither has types
        by_account: Any = config.load_incluster_config
        try:
            by_file(config_file=os.environ.get("KUBECONFIG"), context=context, client_configuration=settings)
        except (ConfigException, OSError, ValueError) as error:
            if context is None:
                try:
                    by_account(client_configuration=settings)
                    return cls(client.ApiClient(settings), namespace, patience_s)
                except ConfigException:
                    pass  # said below, of the kubeconfig, which is what a person has
            which = "" if context is None else f" with the context {context!r}"
            raise KubeError(
                f"There is no cluster to talk to: no usable kubeconfig{which} ({_short(error)}). "
                "Name one with KUBECONFIG=/path/to/config, and try it: kubectl get nodes"
            ) from error
        settings.retries = False  # here every attempt is ours, and counted
        return cls(client.ApiClient(settings), namespace, patience_s)

    # reads

    def pods(self, labels: Mapping[str, str]) -> list[Pod]:
        """All with these labels. Raises KubeError or ApiLost, as everything here."""
        selector = ",".join(f"{name}={value}" for name, value in labels.items())

        def ask() -> bytes:
            return self._body(self._core.list_namespaced_pod, self.namespace, label_selector=selector)

        return msgspec.json.decode(self._persist("list pods", ask), type=PodList).items

    def node(self, name: str) -> Node:
        """One node."""
        answer = self._persist("get nodes", lambda: self._body(self._core.read_node, name))
        return msgspec.json.decode(answer, type=Node)

    def secret(self, name: str, key: str) -> bytes:
        """One value of a Secret."""
        answer = self._persist(
            "get secrets", lambda: self._body(self._core.read_namespaced_secret, name, self.namespace)
        )
        data = msgspec.json.decode(answer, type=SecretData).data
        try:
            return base64.b64decode(data[key], validate=True)
        except (KeyError, binascii.Error) as error:
            raise KubeError(f"The Secret {name} has no value {key!r}.") from error

    def log(self, pod: str, container: str, *, lines: int | None = None) -> bytes:
        """What a container has written, or its last lines."""
        more = {} if lines is None else {"tail_lines": lines}

        def ask() -> bytes:
            return self._body(self._core.read_namespaced_pod_log, pod, self.namespace, container=container, **more)

        return self._persist("get pods/log", ask)

    # programs

    def run(self, pod: str, container: str, command: Sequence[str], timeout_s: float = 60.0) -> Ran:
        """Run a program in a container and wait for its end. It must be one that may be run twice.

        timeout_s: of one attempt. Raises KubeError when it cannot be started, ApiLost.
        """
        return self._persist(f"create pods/exec in {pod}", lambda: self._attempt(pod, container, command, timeout_s))

    def _attempt(self, pod: str, container: str, command: Sequence[str], timeout_s: float) -> Ran:
        connection = stream(
            self._core.connect_get_namespaced_pod_exec,
            pod,
            self.namespace,
            container=container,
            command=list(command),
            stdin=False,
            stdout=True,
            stderr=True,
            tty=False,
            binary=True,
            _preload_content=False,
        )
        deadline = time.monotonic() + timeout_s
        try:
            while connection.is_open():
                connection.update(timeout=1.0)
                if time.monotonic() > deadline:
                    raise _Broken(f"no end within {timeout_s:g} s")
            stdout, stderr, status = (connection.read_channel(n) for n in (_STDOUT, _STDERR, _STATUS))
        finally:
            connection.close()
        return Ran(_exit_code(status), bytes(stdout), bytes(stderr))

    # asking again

    @staticmethod
    def _body(call: Callable[..., Any], *arguments: str, **more: Any) -> bytes:
        answer = call(*arguments, **more, _preload_content=False, _request_timeout=(_CONNECT_S, _READ_S))
        body: bytes = answer.data
        return body

    def _persist(self, what: str, ask: Callable[[], _Answer]) -> _Answer:
        deadline, pause_s = 0.0, _FIRST_PAUSE_S
        while True:
            try:
                return ask()
            except ApiException as error:
                self._refuse(what, error)
                said = f"status {status}" if (status := _status(error)) else _short(error.reason)
            except (urllib3.exceptions.HTTPError, websocket.WebSocketException, OSError, _Broken) as error:
                said = _short(error)
            deadline = deadline or time.monotonic() + self._patience_s  # from the first failure, however late it came
            if time.monotonic() + pause_s > deadline:
                raise ApiLost(f"The Kubernetes API did not answer for {self._patience_s:g} s ({what}: {said}).")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _refuse(self, what: str, error: ApiException) -> None:
        """Raise for an answer that would be the same the next time."""
        status = _status(error)
        if status == HTTPStatus.UNAUTHORIZED:
            raise KubeError(
                "The cluster does not know who you are (401): log in anew, then kubectl get pods"
            ) from error
        if status == HTTPStatus.FORBIDDEN:
            raise KubeError(
                f"You may not {what} in the namespace {self.namespace} (403). The chart's Role RELEASE-runner allows "
                "it: have yourself named in rbac.subjects at install. helm, which changes the release for each run, "
                "needs more: the rights of whoever installs it."
            ) from error
        if status == HTTPStatus.NOT_FOUND:
            raise NotThere(f"It is not there, in the namespace {self.namespace} ({what}: 404).") from error
        if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in (
            HTTPStatus.REQUEST_TIMEOUT,
            HTTPStatus.TOO_MANY_REQUESTS,
        ):
            raise KubeError(f"The Kubernetes API refused to {what}: {status} {_short(error.body or error.reason)}")


def _status(error: ApiException) -> int:
    """0 when no answer came. A refused websocket has its status in its text only."""
    if error.status:
        return int(error.status)
    found = _HANDSHAKE.search(str(error.reason))
    return int(found.group(1)) if found else 0


def _exit_code(status: bytes) -> int:
    """Of the last word on a stream. Raises _Broken when there was none, KubeError when nothing was started."""
    try:
        said = json.loads(status)
    except ValueError as error:
        raise _Broken("the connection ended before the program did") from error
    if said.get("status") == "Success":
        return 0
    for cause in (said.get("details") or {}).get("causes") or []:
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise KubeError(f"A program could not be run in the pod: {said.get('message', 'no reason given')}")


def _short(said: object) -> str:
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    return " ".join(text.split())[:200]
