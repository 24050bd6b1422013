"""What the machine code of a candidate says, before it runs: static readings, never a time.

`sass` reads a GPU's instructions, `disassembler` gets them out of a cubin, `vectors` reads what the
C++ compiler says of its loops. `readings` puts them into evidence.
"""

from tools.profile.code.readings import code_evidence, cubin_evidence

__all__ = ["code_evidence", "cubin_evidence"]
