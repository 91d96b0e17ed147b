"""A suite on several machines: what travels, what a node does, where each unit runs, and the engine below."""
