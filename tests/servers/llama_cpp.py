"""A llama.cpp server on a GGUF file with four slots, by its Python wheel: `python llama_cpp.py FILE PORT`."""

from __future__ import annotations

import signal
import sys

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.hostnames = ["127.0.0.1"]
params.port = int(sys.argv[2])
params.n_parallel = 4
params.n_ctx = 8192
params.cpuparams.n_threads = 2
params.warmup = False
server = xllamacpp.Server(params)
signal.pause()
