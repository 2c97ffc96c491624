"""Models that run in this process: transformers and vLLM, and what they share."""
