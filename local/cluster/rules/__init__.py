"""Admission: defaults, validation, Pod Security, limit ranges, quotas."""
