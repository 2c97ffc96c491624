"""Questions about what a text states, by its words: each is answered in one file, without a model.

    words.py        which words has an answer, in one spelling, as people compare them?
    quantities.py   are two quantities the same, in whatever units?
    phrases.py      does a short text stand in a long one, word for word?
    parts.py        which things does a short answer join, as "Oslo and 1905"?
    names.py        which names and figures has a text, and which of them does the question not have?
    kinds.py        which kind of answer does a question ask for, and has a text one: a number, a date, a name?
    repetition.py   does an answer only repeat its question?
    denial.py       does a text state a phrase, or deny it?
    abstention.py   does an answer say that it gives none?
    verdict.py      is an answer right by a reference?

The words of languages on which these rest are data: `ragguard.text.lexicon`. Whatever asks one of these questions
(metrics, facts, scorers, commands) asks here.
"""
