"""Frozen networks that make features of images and texts."""
