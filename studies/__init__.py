"""The papers' experiments on nano's world: `make study-distraction`, `-belief`, `-sets`, `-coverage`,
`-given`.

Not part of the package. Each study has a module of its own with `study(engine, …)`; its figures are kept in
`results/`, its page is `docs/studies/NAME.md`.
"""

STUDIES = ("distraction", "belief", "sets", "coverage", "given")
