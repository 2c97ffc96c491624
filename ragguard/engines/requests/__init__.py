"""Requests: the values that travel through the layers, one file for each kind.

`labels.py` asks for the probabilities of labels, `draws.py` for sampled answers. The log-probabilities of given
continuations belong into `continuations.py`: a kind of `base.Request` with its keys, a verb and a method of
`FoundModel` in `engines/engine.py`. No layer needs to change for another kind.
"""
