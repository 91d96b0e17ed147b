"""Programs of which nothing is known but the number that they print."""
