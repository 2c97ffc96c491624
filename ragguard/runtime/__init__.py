"""What the whole package runs on, one of each: fork registry, retry schedule, circuit breaker, limiter, deadline,
background loop, threads, clock, notices, faults."""
