"""The walk through one forward pass, step by step as a reader would tell it."""
