"""Scoring in parts on a Ray cluster: `ragguard score INPUT… --on ray --out DIR`, or `score_on_ray`. Needs the extra
`ray`."""

from ragguard_ray.actors import RayActors, score_on_ray

__all__ = ["RayActors", "score_on_ray"]
