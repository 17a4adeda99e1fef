"""Users in a closed loop: locust -f locustfiles/tiers.py --headless --tier-users 20 --host http://127.0.0.1:8000."""

from locust import events

from agentdyno.load.tiers import AllAtOnce, WaitingUser, install

__all__ = ["AllAtOnce", "WaitingUser"]

install(events)
