"""Things outside of every wall that an evil may try to reach: a file, and somebody who listens.

Texts of evils name them by placeholders. A wall hides both or refuses them; where there is none
an evil that needs them is right, and the table says so.
"""

import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernelwright.tools.evaluate.messages.foreign import Foreign

_PORT, _FILE = "OUTSIDE_PORT", "OUTSIDE_FILE"


@contextmanager
def reachable(made: Foreign) -> Iterator[Foreign]:
    """The file with the placeholders filled in, and what they name as long as this lasts."""
    if _PORT not in made.source and _FILE not in made.source:
        yield made
        return
    with (
        tempfile.TemporaryDirectory(prefix="kernelwright-outside-") as folder,
        socket.create_server(("127.0.0.1", 0), backlog=64) as listener,
    ):
        file = Path(folder) / "kept.txt"
        file.write_text("nothing yet\n", encoding="utf-8")
        port = str(listener.getsockname()[1])
        source = made.source.replace(_PORT, port).replace(_FILE, str(file))
        yield made.model_copy(update={"source": source})
