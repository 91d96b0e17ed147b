"""Pure mathematics: numbers in, numbers out; NumPy, SciPy and the standard library, and nothing else of tftune."""
