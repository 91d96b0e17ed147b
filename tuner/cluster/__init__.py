"""A suite on several machines: the messages, the node, the placement, and the engine that carries the messages."""
