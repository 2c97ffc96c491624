"""The papers' experiments, one a file: each an `async def study(engine, *, questions, seed, progress) -> list[Table]`."""
