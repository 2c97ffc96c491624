"""What travels through the layers: one file for each kind of request."""
