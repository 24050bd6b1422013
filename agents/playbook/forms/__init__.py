"""The forms a task can be computed in: as written, rewritten by algebra, in another layout.

Each form is a program of its own. The search chooses among forms as among strategies of a loop: by
the roofline first, then by what was measured. The judge decides about a form's rounding as about
any candidate's. A new kind of form is a file of this folder and one line in `registry`.
"""

from agents.playbook.forms.as_written import AS_WRITTEN, AS_WRITTEN_TITLE
from agents.playbook.forms.kind import Form, FormKind
from agents.playbook.forms.registry import FORM_KINDS, forms

__all__ = ["AS_WRITTEN", "AS_WRITTEN_TITLE", "FORM_KINDS", "Form", "FormKind", "forms"]
