"""Readers of single papers' data: their contexts, as `ragguard validate` has them."""
