"""For people with labels of their own: how many of them are wrong, and which."""
