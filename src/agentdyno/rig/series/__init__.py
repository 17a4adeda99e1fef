"""One host under one load after the other: searches for a capacity, and sweeps of users."""
