"""How the agents cooperate: the search as a LangGraph."""
