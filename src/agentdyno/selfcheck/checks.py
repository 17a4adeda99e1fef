"""The checks there are, in the order in which they run."""

from __future__ import annotations

from agentdyno.selfcheck import (
    analysis_speed,
    audit_speed,
    encode,
    instruments,
    lightagent,
    load_accuracy,
    mock,
    overhead,
    recorder,
    scrapes,
    stall,
    truth,
)
from agentdyno.selfcheck.check import Check

CHECKS: tuple[Check, ...] = (
    load_accuracy.CHECK,
    stall.CHECK,
    truth.CHECK,
    mock.CHECK,
    lightagent.CHECK,
    overhead.CHECK,
    instruments.CHECK,
    scrapes.CHECK,
    recorder.CHECK,
    encode.CHECK,
    analysis_speed.CHECK,
    audit_speed.CHECK,
)
