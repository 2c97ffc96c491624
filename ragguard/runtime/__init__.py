"""The machines on which the whole package runs, one of each: fork registry, retry schedule, circuit breaker, limiter,
deadline, background loop, threads, clock, notices, faults."""
