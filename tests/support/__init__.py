"""What tests of several tiers share. A file holds one idea; nothing here knows a tier."""
