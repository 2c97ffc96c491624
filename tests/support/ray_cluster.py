"""A real Ray cluster of two nodes on this machine, for drivers that run as processes of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from support.program import environment

STORE_BYTES = 200 * 2**20
"""The bytes that a node keeps in shared memory: parts carry next to nothing."""


class RayCluster:
    """The nodes of a cluster and its address."""

    def __init__(self, nodes: Any) -> None:
        self._nodes = nodes
        self.address: str = nodes.address
        """HOST:PORT, as RAY_ADDRESS has it."""
        self.workers: list[Any] = []

    def add_node(self) -> Any:
        """Adds a node with one core and returns it."""
        node = self._nodes.add_node(num_cpus=1, object_store_memory=STORE_BYTES)
        self.workers.append(node)
        return node

    def kill_node(self, node: Any) -> None:
        """Kills a node's processes without a word."""
        self.workers.remove(node)
        self._nodes.remove_node(node, allow_graceful=False)

    def shutdown(self) -> None:
        """Ends all nodes."""
        self._nodes.shutdown()


@contextmanager
def ray_cluster() -> Iterator[RayCluster]:
    """Starts a head and a second node, each with one core for actors; ends them with the block."""
    settings = {
        **environment(),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_raylet_start_wait_time_s": "240",  # on a busy machine
        "RAY_health_check_initial_delay_ms": "500",  # a killed node is noticed within seconds
        "RAY_health_check_period_ms": "500",
        "RAY_health_check_timeout_ms": "1000",
        "RAY_health_check_failure_threshold": "3",
    }
    with patch.dict(os.environ, settings):
        from ray.cluster_utils import Cluster

        # Without node_ip_address: on loopback, whoever connects would wait for ever.
        head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": STORE_BYTES}
        cluster = RayCluster(Cluster(initialize_head=True, head_node_args=head))
        try:
            cluster.add_node()
            yield cluster
        finally:
            cluster.shutdown()
