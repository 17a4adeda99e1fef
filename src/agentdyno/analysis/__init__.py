"""From raw records to figures: percentiles, declared metrics, the verdict."""
