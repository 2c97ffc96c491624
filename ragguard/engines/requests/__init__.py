"""Requests: the values that travel through the layers, one file for each kind.

`labels.py` asks for the probabilities of labels, `draws.py` for sampled answers, `continuations.py` for the
probabilities of given texts. Another kind is a kind of `request.Request` with its keys, a verb, and a method of
`FoundModel` in `engines/engine.py`; no layer needs to change for it.
"""
