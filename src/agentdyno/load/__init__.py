"""The load side: the arrival schedule, the Locust user that follows it, the check of every answer."""
