"""Text in, value out: no file, clock or child."""
