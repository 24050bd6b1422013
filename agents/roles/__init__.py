"""All roles of a search together: the registry, and the set of agents that thinks in one."""
