"""Pure mathematics: numbers in, numbers out; NumPy, SciPy and the standard library, and nothing else of tftune."""

MARGIN = 0.02
"""The smallest difference that matters in practice, unless the user says another: fixed, whatever the noise is."""

Z95 = 1.96
"""Standard deviations from the middle to either end of a normal interval of 95 %."""
