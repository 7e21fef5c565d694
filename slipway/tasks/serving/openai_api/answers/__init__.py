"""What clients get, for each API: whole answers, events of a stream, log-probabilities. No request is read here."""
