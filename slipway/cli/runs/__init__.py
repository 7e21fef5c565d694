"""Commands about runs and releases, and how they are shown."""
