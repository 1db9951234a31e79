"""One file a check. Every module here is imported by `check.checks()`: there is no list to edit."""
