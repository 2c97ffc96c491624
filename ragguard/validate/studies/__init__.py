"""The papers' experiments, one a file: `async def study(engine, *, questions, seed, progress) -> list[Table]`."""
