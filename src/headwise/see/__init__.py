"""Pictures of what the model looks at: attention maps and position encodings."""
