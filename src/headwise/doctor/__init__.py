"""The doctor: name the known mistake in anyone's Transformer, with its line, measurement and fix."""
