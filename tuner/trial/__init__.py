"""One setting in its own process: the wire protocol, the child, its guard and the launchers."""
