"""From text to batches of token ids: made-up dates, parallel files, subwords, length buckets."""
