"""What every floor may use: one of each, and none of it knows what it is used for."""
