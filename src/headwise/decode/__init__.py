"""From a source sentence to its translation: greedy and beam search on cached keys and values."""
