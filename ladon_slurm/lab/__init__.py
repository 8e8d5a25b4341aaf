"""What is done with recordings: replay, scoring. Never imported by the daemon."""
