"""A constant arrival rate, open loop: locust -f locustfiles/constant.py --host http://127.0.0.1:8000."""

from locust import events

from agentdyno.load.user import ConstantArrivals, OneUserPerWorker, install

__all__ = ["ConstantArrivals", "OneUserPerWorker"]

install(events)
