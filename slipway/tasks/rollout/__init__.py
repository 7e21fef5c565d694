"""From a published repository to traffic: pure decisions in decide, effects in act."""
