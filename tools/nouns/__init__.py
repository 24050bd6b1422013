"""The nouns of the house: every value that crosses a seam between two rooms.

All are frozen pydantic models without behaviour beyond reading themselves; units stand in
names. A failed candidate is one of these values; an exception means Kernelwright is broken.
"""

from tools.nouns.audit import Badge, Dispatched, Doubt, MemoryNeeds
from tools.nouns.call import Call, Message, Prompt, Reply, RoleName, ToolCall
from tools.nouns.candidate import Candidate, LanguageName, Setting
from tools.nouns.environment import EnvironmentLacksError
from tools.nouns.evidence import Evidence, Rank, Symptom
from tools.nouns.graph import (
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
from tools.nouns.idea import Analysis, Claim, Idea, LedgerEntry, Prediction
from tools.nouns.isolation import NOT_ISOLATED, UNBUILT, Isolation, WallKind
from tools.nouns.launch import LaunchShape
from tools.nouns.measurement import (
    Baseline,
    Baselines,
    Comparison,
    Conditions,
    Measurement,
    ModeTiming,
)
from tools.nouns.phase import Phase
from tools.nouns.profile import (
    HostCounters,
    KernelCounters,
    KernelTime,
    Missing,
    Profile,
    RuleResult,
)
from tools.nouns.strategy import EvolvingRole, StrategyVersion
from tools.nouns.task import Domain, InputSpec, Refusal, Task, TracePolicy, WeightSpec
from tools.nouns.value import Value
from tools.nouns.verdict import (
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
