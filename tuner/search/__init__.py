"""Which setting comes next, and the record of all that came before."""
