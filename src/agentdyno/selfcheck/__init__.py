"""The rig measures itself: its load generator, its clocks, its mock LLM, and what its own parts cost."""
