import os
import tempfile

# Chainlit writes its folder wherever it is imported, unless it is told a place before.
os.environ.setdefault("CHAINLIT_APP_ROOT", tempfile.mkdtemp(prefix="kernelwright-chainlit-"))
os.environ.setdefault("CHAINLIT_AUTH_SECRET", "0" * 64)
