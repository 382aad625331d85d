"""proxies."""
