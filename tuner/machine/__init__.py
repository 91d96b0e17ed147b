"""The host: topology, affinity mask, container limits and the right to measure alone."""
