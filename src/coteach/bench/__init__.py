"""How fast an epoch is: ours, the loops that people write, and what the device could do."""
