"""The Transformer, part by part, in the order of the paper."""
