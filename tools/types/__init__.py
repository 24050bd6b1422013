"""The nouns of the house: every value that crosses a seam between two rooms.

All are frozen pydantic models without behaviour beyond reading themselves; units stand in
names. A failed candidate is one of these values; an exception means Kernelwright is broken.
"""

from kernelwright.tools.types.audit import Badge, Dispatched, Doubt, MemoryNeeds
from kernelwright.tools.types.candidate import Candidate, LanguageName, Setting
from kernelwright.tools.types.environment import EnvironmentLacksError
from kernelwright.tools.types.evidence import Evidence, Rank, Symptom
from kernelwright.tools.types.graph import (
    Arg,
    DType,
    DTypeArg,
    Graph,
    ListArg,
    Mutation,
    Node,
    Ref,
    Scalar,
    TensorSpec,
)
from kernelwright.tools.types.idea import Analysis, Claim, Idea, LedgerEntry, Prediction
from kernelwright.tools.types.isolation import NOT_ISOLATED, UNBUILT, Isolation, WallKind
from kernelwright.tools.types.launch import LaunchShape
from kernelwright.tools.types.measurement import (
    Baseline,
    Baselines,
    Comparison,
    Conditions,
    Measurement,
    ModeTiming,
)
from kernelwright.tools.types.model_call import Call, Message, Prompt, Reply, RoleName, ToolCall
from kernelwright.tools.types.phase import Phase
from kernelwright.tools.types.profile import (
    HostCounters,
    KernelCounters,
    KernelTime,
    Missing,
    Profile,
    RuleResult,
)
from kernelwright.tools.types.strategy import EvolvingRole, StrategyVersion
from kernelwright.tools.types.task import Domain, InputSpec, Refusal, Task, TracePolicy, WeightSpec
from kernelwright.tools.types.value import Value
from kernelwright.tools.types.verdict import (
    Clocks,
    CompileReport,
    Effort,
    Evaluation,
    OutputError,
    StageTimes,
    Verdict,
    Verification,
)

__all__ = [
    "NOT_ISOLATED",
    "UNBUILT",
    "Analysis",
    "Arg",
    "Badge",
    "Baseline",
    "Baselines",
    "Call",
    "Candidate",
    "Claim",
    "Clocks",
    "Comparison",
    "CompileReport",
    "Conditions",
    "DType",
    "DTypeArg",
    "Dispatched",
    "Domain",
    "Doubt",
    "Effort",
    "EnvironmentLacksError",
    "Evaluation",
    "Evidence",
    "EvolvingRole",
    "Graph",
    "HostCounters",
    "Idea",
    "InputSpec",
    "Isolation",
    "KernelCounters",
    "KernelTime",
    "LanguageName",
    "LaunchShape",
    "LedgerEntry",
    "ListArg",
    "Measurement",
    "MemoryNeeds",
    "Message",
    "Missing",
    "ModeTiming",
    "Mutation",
    "Node",
    "OutputError",
    "Phase",
    "Prediction",
    "Profile",
    "Prompt",
    "Rank",
    "Ref",
    "Refusal",
    "Reply",
    "RoleName",
    "RuleResult",
    "Scalar",
    "Setting",
    "StageTimes",
    "StrategyVersion",
    "Symptom",
    "Task",
    "TensorSpec",
    "ToolCall",
    "TracePolicy",
    "Value",
    "Verdict",
    "Verification",
    "WallKind",
    "WeightSpec",
]
