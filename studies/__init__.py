"""The papers' experiments on nano's world: `make study-NAME`, with the names of `STUDIES`.

Not part of the package. Each study has a module of its own with `study(engine, …)`; its figures are kept in
`results/`, its page is `docs/studies/NAME.md`.
"""

STUDIES = (
    "distraction",
    "distractors",
    "belief",
    "retrieval",
    "sets",
    "coverage",
    "judges",
    "decisions",
    "likelihood",
    "lists",
    "credit",
    "real",
)
