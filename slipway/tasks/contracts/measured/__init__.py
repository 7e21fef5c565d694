"""What a release was measured to do, and the verdicts on it. How it is measured lives in slipway/tasks/adapters."""
