"""From tokens to the text of an answer, its ends, and its log-probabilities."""
