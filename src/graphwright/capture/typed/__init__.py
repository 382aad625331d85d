"""typed."""
