"""Starts Phoenix on the loopback interface only. Runs inside Phoenix's environment, not in ours.

PHOENIX_HOST does not bind its gRPC port, so the address is rewritten where the port is opened.
"""

import sys

import grpc.aio

_open = grpc.aio._server.Server.add_insecure_port


def _on_loopback(self, address):
    return _open(self, address.replace("[::]", "127.0.0.1").replace("0.0.0.0", "127.0.0.1"))


grpc.aio._server.Server.add_insecure_port = _on_loopback
sys.argv = ["phoenix", "serve"]

from phoenix.server.main import main  # noqa: E402

main()
