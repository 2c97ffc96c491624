"""Mechanisms that the whole package uses, one of each kind: fork registry, retry schedule, circuit breaker, limiter,
deadline, background loop, threads, clock, notices, faults."""
