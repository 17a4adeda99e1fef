"""Stock Locust's closed loop on the same requests, to compare with constant.py; see agentdyno.load.closed_loop."""

from locust import events

from agentdyno.load.closed_loop import ForTheWholePlan, StockConstantThroughput, install

__all__ = ["ForTheWholePlan", "StockConstantThroughput"]

install(events)
