"""`python -m tuner` is `tftune`, whatever is on the PATH."""

from tuner.cli import main

if __name__ == "__main__":
    main()
