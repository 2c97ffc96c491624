"""Requests: the values that travel through the layers, one file for each kind.

`labels.py` asks for the probabilities of labels, `draws.py` for sampled answers. The log-probabilities of given
continuations belong into `continuations.py`: a kind of `base.Request` with its keys, a verb in `verbs.py`, and a method
of `model_engine.FoundModel`. No layer needs to change for another kind.
"""
