"""Experiments: what is to be run, the run folder, and the running of it."""
