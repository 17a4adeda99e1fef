"""Measurements of the rig's own parts, each a function that returns figures as a dict; `make selfcheck` prints them."""
