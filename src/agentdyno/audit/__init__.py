"""Computes what is published a second time from the raw files, and says where the two differ."""
