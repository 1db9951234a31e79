"""A run on disk: a directory that is written atomically, named when damaged, never unpickled."""
