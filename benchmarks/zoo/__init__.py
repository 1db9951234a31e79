"""Models that are right, and ways to damage them: what the doctor is measured on beside its specimens."""
