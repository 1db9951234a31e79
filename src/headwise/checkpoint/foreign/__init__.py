"""Other people's checkpoints: the layouts of the transformers library, read and written."""
