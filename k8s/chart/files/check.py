"""The chart's `helm test`: addresses that must answer, and one request whose answer must prove its work."""

import argparse
import os
import sys
import urllib.error
import urllib.request

import msgspec

from agentdyno.contract.invoke import INVOKE_PATH
from agentdyno.contract.proof import Stage, key_from_environment, order_id
from agentdyno.contract.run import Outcome
from agentdyno.contract.scenario import SCENARIOS
from agentdyno.load.verify import judge

TIMEOUT_MS = 60_000
INDEX = 2**40 + 1  # an order of the warm-up that no schedule reaches

_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def healthy(url: str) -> str:
    """A sentence when `url` does not answer with 200; empty when it does."""
    try:
        with _direct.open(url, timeout=10):
            return ""
    except OSError as error:
        return f"{url} does not answer: {error}."


def proven(host: str, scenario_name: str) -> str:
    """A sentence when the host's answer is not what the scenario asks for; empty when it is."""
    scenario, key = SCENARIOS[scenario_name], key_from_environment(os.environ)
    order = order_id(0, Stage.WARMUP, INDEX)
    body = msgspec.json.encode(scenario.request(0, Stage.WARMUP, INDEX, TIMEOUT_MS))
    request = urllib.request.Request(host + INVOKE_PATH, data=body, headers={"content-type": "application/json"})
    try:
        with _direct.open(request, timeout=TIMEOUT_MS / 1000 + 5) as response:
            status, answer = response.status, response.read()
    except urllib.error.HTTPError as error:
        status, answer = error.code, error.read()
    except OSError as error:
        return f"{host} gave no answer: {error}."
    judged = judge(status, answer, order, key, scenario)
    if judged.outcome is Outcome.OK:
        return ""
    return f"{host} answered wrongly ({judged.reason}): status {status}, {answer[:300].decode('utf-8', 'replace')!r}."


def main() -> int:
    """0 when all is well, 1 when not, with a sentence for each fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", choices=sorted(SCENARIOS), default="chain")
    parser.add_argument("--invoke", required=True, help="the host's address")
    parser.add_argument("urls", nargs="*", help="addresses that must answer with 200")
    options = parser.parse_args()
    faults = [fault for url in options.urls if (fault := healthy(url))]
    if not faults and (fault := proven(options.invoke, options.scenario)):
        faults.append(fault)
    sys.stdout.write("".join(f"{fault}\n" for fault in faults) or "One request was answered with its proof of work.\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
