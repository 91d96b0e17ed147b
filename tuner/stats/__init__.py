"""Pure mathematics: numbers in, numbers out; NumPy, SciPy and the standard library, and nothing else of tftune."""

MARGIN = 0.02
"""The smallest difference that matters in practice, unless the user says another: fixed, whatever the noise is."""
