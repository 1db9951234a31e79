"""Statistics of a model while it trains, in anyone's loop: nothing of what is trained changes."""
