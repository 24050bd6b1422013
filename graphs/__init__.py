"""How the agents cooperate: the search as a LangGraph."""

import os

# Checkpoints may hold only the types that the state's schema names; read when langgraph is
# first imported, hence here.
os.environ.setdefault("LANGGRAPH_STRICT_MSGPACK", "true")
