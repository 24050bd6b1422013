"""Understands what a person wants to see or know: code, reasons, profiles, progress, runs, help.

The first kind that fits is taken; the order is from what can only mean one thing to what could
mean several. What people call the things they ask about is kept as patterns over plain words. The
usual questions about a result (`will it still train?`) stand in `topics`.
"""

import re
from collections.abc import Callable

from kernelwright.agents.assistant.parsing.names import (
    candidate_in,
    candidates_in,
    round_in,
    run_in,
)
from kernelwright.agents.assistant.parsing.text import is_question
from kernelwright.agents.assistant.types import (
    AskDoctor,
    AskForHelp,
    AuditTask,
    Command,
    CompareCandidates,
    ExplainCandidate,
    ExplainRound,
    GetReport,
    ListRuns,
    ReopenRun,
    ShowCode,
    ShowLedger,
    ShowProfile,
    ShowProgress,
    ShowSteering,
    Turn,
)

COMPARE = (
    r"\b(?:(?:what|which).*\b(?:changed|better|faster|slower)|compare|comparison|"
    r"versus|vs\.?|differ(?:s|ent|ence|ences)?|diff|against|"
    r"beats?|"
    r"(?:faster|slower|quicker|worse|better)\b.*\bthan|instead of|over v?\d)\b"
)
HELP = (
    r"^(?:help|\?+|menu|commands?|options|manual|instructions|usage)$|^help me$|"
    r"^(?:what|huh|pardon|i do not (?:understand|get it))$|"
    r"\bwhat (?:can|could|may|should|do) (?:i|you|we|one) "
    r"(?:do|ask|say|tell|type|offer|understand)\b|\bhow (?:does (?:this|it all|"
    r"kernelwright) work|do i (?:use|work with|start|begin)|can i (?:use|start))|"
    r"\bwhat (?:are|is) (?:you|this(?: tool| page| chat| thing)?|the commands|"
    r"kernelwright)(?: for)?\??$|\bwho (?:are|made) you\b|\bwhat (?:can|"
    r"may) i (?:upload|attach|send|give)|\bapi key|\bdo i need\b|\bhow do i\b|"
    r"\bwhat are my options\b|"
    r"\bwhat now\b|\bwhat next\b|"
    r"^(?:hi|hello|hey|hallo|moin|servus|good (?:morning|evening|afternoon|day)|"
    r"greetings|yo)(?: there| all| everyone)?$|\bexamples?\b.*\b(?:ask|say|do)\b|"
    r"\b(?:close|leave|shut) (?:the|this|my) (?:page|tab|browser|window|chat|laptop)\b|"
    r"\bneed help\b|\bi am (?:lost|new)\b|\bget(?:ting)? started\b"
)
DOCTOR = (
    r"\bdoctor\b|\b(?:what|which) (?:gpu|device|hardware|machine|cpu|compilers?|card|"
    r"accelerator)s?\b|\bwhat (?:works|is installed|can this machine)\b|"
    r"\b(?:is|are) (?:there )?(?:a |any |the )?(?:gpus?|cuda|nvcc|nvrtc|compilers?|"
    r"ncu|nsight|profilers?|driver)\b.*\b(?:here|available|installed|working|present|"
    r"there|ok|found)\b|"
    r"\bdo (?:you|we) have (?:a |an |any )?(?:gpu|cuda|compiler|profiler|ncu|nsight)|"
    r"\b(?:check|test|diagnose|show|describe) (?:the |this |my |your )*(?:machine|"
    r"environment|setup|system|hardware|installation|gpu|device)\b|"
    r"\b(?:cuda|driver|torch|pytorch) version\b|\bversion of (?:cuda|torch|pytorch)\b|"
    r"\bdiagnos\w+|\bhealth ?check\b|\bwhere (?:does|do|will) (?:this|it|you|"
    r"the search) run\b|\bis (?:the|a|my) gpu\b"
)
RUNS = (
    r"\b(?:list|show|see|display|which|what|all|open|find|my|past|previous|earlier|"
    r"old|other|recent|former)\b.*\b(?:runs|searches|sessions|results so|jobs|"
    r"history of runs|past work)\b|"
    r"^(?:(?:my |the )?(?:runs|searches|history|sessions))$|\bwhat (?:did|"
    r"have) i (?:run|search|optimi[sz]e|do|start)\w*\b|\b(?:show|see|my) (?:the |"
    r"my )?history\b|\bearlier (?:results|work)\b|\bshow (?:me )?what i (?:ran|did)\b"
)
STEERING = (
    r"\b(?:steering|pins|bans|hints|pinned|banned|hinted|restrictions|constraints)\b|"
    r"\bwhat (?:did|have) i (?:tell|told|said|say|ask|asked|forbid|forbidden|ban|"
    r"pin)\b|"
    r"\bwhat (?:is|are) (?:you )?(?:forbidden|allowed|ruled out|focus(?:ing|"
    r"ed)? on)\b|\b(?:my|current|active) (?:wishes|rules|instructions)\b|"
    r"\bwhich rules\b|\bwish(?:es)?\b"
)
AUDIT = (
    r"\b(?:audit|floor|roofline limit|speed of light|theoretical (?:speed.?up|limit|minimum|"
    r"maximum|best|peak)|lower bound|upper bound|best possible|how fast (?:could|"
    r"can) (?:it|this|that) (?:possibly |ever )?(?:be|get|go|run)|"
    r"how much (?:faster (?:can|could|might)|room|headroom|potential|can be gained|"
    r"is there to gain)|"
    r"can (?:it|this|that) (?:possibly |even )?(?:get|go|be|become|run) (?:any |even |much )?"
    r"(?:faster|quicker)|headroom|worth (?:it|optimi[sz]ing|trusting|the effort)"
    r"|fair(?: comparison|"
    r" benchmark)?|prove anything|trustworthy|baselines?|"
    r"(?:what|which) (?:kernels? )?does (?:pytorch|torch|eager|it) (?:do|run|call|use|"
    r"dispatch)|dispatch(?:es|ed)?|what is the task|describe the task|"
    r"show (?:me )?the task|task card|memory.bound or compute.bound)\b"
)
PROFILE = (
    r"\b(?:profile[rsd]?|profiling|roofline|bottlenecks?|bound by|bounds? (?:it|the|"
    r"v\d+|this|that|best)|limits? (?:it|the (?:best|kernel|speed)|v\d+|this)|"
    r"limiting|occupancy|counters?|ncu|nsight|bandwidth|"
    r"throughput|cache (?:misses|hits?)|stalls?|utili[sz]ation|registers?|spill(?:s|"
    r"ing|ed)?|memory.bound|compute.bound|holding (?:it|v\d+) back|slows? (?:it|"
    r"v\d+) down|where does the time go|where is the time|hot ?spots?|flop[/s]*)\b"
)
LEDGER = (
    r"\b(?:ledger|(?:all|every|the|which|what|list|your|show|any|more|other|explain|"
    r"about) (?:of )?(?:the |your )?ideas?|ideas|(?:everything|all|"
    r"what) (?:that )?(?:you|was|were|has been|have been|did you|"
    r"have you) (?:already )?(?:try|tried|tested|attempted)|"
    r"have you (?:already )?(?:tried|tested|considered|used|thought|looked)|"
    r"did you (?:already |ever )?(?:try|test|consider|use)|what (?:worked|failed|"
    r"did not work|paid off|"
    r"helped)|what (?:has|have) (?:worked|failed)|what (?:did not|has not)|attempts|"
    r"predictions?|tried already|already tried|what else)\b"
)
JUST_NOW = (
    r"\b(?:just|currently|right now|at the moment)\b.*\b(?:try|tried|trying|do|did|"
    r"doing|write|wrote|"
    r"test|tested|going)\b|^what is (?:the |your )?(?:current )?best(?: one| time|"
    r" result| speed-?up)?"
    r"(?: yet| now| so far)?$"
)
NOW = (
    r"\b(?:progress|status|state of|leader ?board|ranking|standings?|scores?|stand|"
    r"how (?:is|are) (?:it|the search|things|that|we|you|this|the run)|how far|"
    r"how (?:much )?long(?:er)?|how (?:fast|quick) (?:is|are)|eta|where (?:are|"
    r"is) (?:we|you|it|the search)|"
    r"what (?:are|is|were) (?:you|it|the agents?|they|happening|going|the (?:planner|"
    r"coder|critic|agents?|best|fastest|current|speed|leader|time)|just|up)|"
    r"what did (?:you|it|they) (?:just )?(?:try|do|change|write|test)|"
    r"what (?:just )?happened|what(?: is| have you)? (?:got|new)|"
    r"best (?:so far|time|result|speed.?up|yet)|current best|who leads|"
    r"who is (?:leading|ahead|winning|first)|(?:any|some) (?:news|luck|updates?|"
    r"progress|results?|improvements?)|updates?|speed.?ups?|results?|anything (?:yet|good|"
    r"new|better|faster)|"
    r"when (?:will|are|is|do|does)|are (?:you|we) (?:done|finished|there|ready|still|"
    r"stuck)|is it (?:done|finished|running|ready|over|faster|working)|finished|"
    r"done yet|(?:time|rounds?|budget|tokens?|money|cost) (?:left|remaining|used|"
    r"spent)|how (?:many|much)|"
    r"trajectory|plot|chart|graph|recap|summar\w+|overview|what do you have|"
    r"did (?:you|it) (?:find|get|improve|work|beat)|why (?:did (?:you|it)|has it|"
    r"is it) (?:stop|stuck|end|paus|finish|take|taking|slow)\w*|cost|fail(?:ed|s)?|"
    r"improved?|should i (?:stop|"
    r"wait|continue|go on)|worth continuing|tell me more about (?:the search|"
    r"progress)|doing)\b"
)
CODE = (
    r"\b(?:code|source|kernel source|plan|listing|cuda|c\+\+|implementation|script|"
    r"program|what does (?:the kernel|the code|it) look like)\b"
)
KERNEL = r"\b(?:show|see|display|print|view|open|dump|paste|present|inspect)\b.*\bkernel\b"
ROLES = r"\b(?:critic|planner|profiler|reasoning|critique|analysis|thoughts)\b"
LAST_RUN = (
    r"\b(?:open|back to|continue|reopen|resume|load|return to|pick up)\b.*"
    r"\b(?:last|latest|previous|earlier|most recent|old) (?:run|search|session|one)\b"
)
QUALITY = (
    r"\b(?:verified|verification|precision|tolerance|accura\w+|correct|explain (?:this|it|that)"
    r"|what does it do|the trick)\b"
)
SEE = (
    r"\b(?:show|see|display|print|view|open|give|look|list|read|dump|paste|what is|"
    r"what does|get|share|where is|fetch|present|inspect|let)\b"
)
EXPLAIN = (
    r"\b(?:explain|why|how (?:does|did|do|was|is|come)|what does|what is|what was|"
    r"what makes|tell|describe|about|details?|detail|elaborate|walk me through|"
    r"correct|verified|verify|right|wrong|fail(?:s|ed|ure)?|broken|reject(?:ed)?|"
    r"work(?:s|ed|ing)?|"
    r"happened|trick|idea behind|reason|understand|mean|judged|accurate|precise|trust|"
    r"safe|learn|show|see|what about|and|look at|info(?:rmation)?)\b"
)


_BASELINE = re.compile(
    r"\b(?:eager|py ?torch|torch|torch\.compile|compile|baselines?|the original|"
    r"reference|mine|before)\b"
)

_TELLS = re.compile(
    r"\b(?:explain|show|tell|summar\w+|describe|about|recap|see|details?|critic|planner|analysis"
    r"|give)\b"
    r"|^(?:the )?(?:\w+ )?round(?: \w+)?$"
)

Act = Callable[[str, Turn], tuple[Command, ...]]


def question_in(words: str, turn: Turn) -> tuple[Command, ...]:
    """What a clause wants shown or explained; none when it is something else."""
    for pattern, act in _ACTS:
        if re.search(pattern, words) and (found := act(words, turn)):
            return found
    # Whatever is asked of a candidate by its name, its explanation is the answer.
    return _explain(words, turn) if is_question(words) else ()


def name_in(words: str, turn: Turn) -> tuple[Command, ...]:
    """`v17`, `the best`: a candidate and nothing else is to be explained."""
    named = candidates_in(words, turn)
    rest = re.sub(
        r"\b(?:the|a|of|candidate|version|kernel|one|and|best|fastest|winner|last|latest)\b|#",
        " ",
        words,
    )
    rest = re.sub(r"\bv?\d+\b|\b[0-9a-f]{6,12}\b", " ", rest)
    if named and not re.search(r"\w", rest):
        return tuple(ExplainCandidate(candidate=name) for name in named)
    return ()


def _compare(words: str, turn: Turn) -> tuple[Command, ...]:
    named = candidates_in(words, turn)
    if not named and re.search(r"\b(?:it|this|that)\b", words):
        named = ("best",)
    if len(named) >= 2:
        return (CompareCandidates(one=named[0], other=named[1]),)
    if _BASELINE.search(words) or not named:
        asks_two = re.match(r"(?:compare|diff|show me the diff\w*|what changed)\b", words)
        if _BASELINE.search(words) and (asks_two or "compare" in words):
            return (ShowProgress(),)
        return (CompareCandidates(),) if asks_two else ()
    if re.search(r"\b(?:compare|diff\w*|versus|vs|faster|slower|better|worse|beats?)\b", words):
        return (CompareCandidates(one=named[0]),)
    return ()


def _round(words: str, turn: Turn) -> tuple[Command, ...]:
    which = round_in(words)
    asked = is_question(words) or _TELLS.search(words)
    return (ExplainRound(round=which),) if which is not None and asked else ()


def _latest_round(words: str, turn: Turn) -> tuple[Command, ...]:
    """What roles said stands with their round, unless it was about a candidate."""
    return () if candidates_in(words, turn) or not turn.run else (ExplainRound(),)


def _run(words: str, turn: Turn) -> tuple[Command, ...]:
    run = run_in(words)
    opens = re.search(
        r"\b(?:open|reopen|show|load|back|switch|see|return|resume|continue|take|view|find)\b",
        words,
    )
    return (ReopenRun(run=run),) if run and opens and re.search(r"\d", run) else ()


def _code(words: str, turn: Turn) -> tuple[Command, ...]:
    if re.search(r"\b(?:explain|why|how|describe|walk)\b", words):
        return (ExplainCandidate(candidate=candidate_in(words, turn)),)
    return (ShowCode(candidate=candidate_in(words, turn)),)


def _profile(words: str, turn: Turn) -> tuple[Command, ...]:
    if not turn.run and turn.task:
        return (AuditTask(),)
    return (ShowProfile(candidate=candidate_in(words, turn)),)


def _explain(words: str, turn: Turn) -> tuple[Command, ...]:
    named = candidates_in(words, turn)
    if len(named) == 2 and re.search(r"\b(?:between|or|better|which|than|from)\b", words):
        return (CompareCandidates(one=named[0], other=named[1]),)
    if named:
        return tuple(ExplainCandidate(candidate=name) for name in named)
    return ()


def _quality(words: str, turn: Turn) -> tuple[Command, ...]:
    """What is asked of the result, without naming one."""
    return (ExplainCandidate(),) if turn.run else ()


def _about_ideas(words: str, turn: Turn) -> tuple[Command, ...]:
    return (ShowLedger(),)


def _one(command: Command) -> Act:
    return lambda words, turn: (command,)


_ACTS: tuple[tuple[str, Act], ...] = (
    (HELP, _one(AskForHelp())),
    (COMPARE, _compare),
    (DOCTOR, _one(AskDoctor())),
    (r".", _run),
    (LAST_RUN, _one(ListRuns())),
    (RUNS, _one(ListRuns())),
    (STEERING, _one(ShowSteering())),
    (r"\bround\b", _round),
    (r"\b(?:html )?report\b", _one(GetReport())),
    (
        rf"(?={SEE}).*(?:{CODE})|^(?:the )?(?:{CODE})(?: (?:of|"
        r"for|from) .*)?$|"
        r"(?:explain|walk me through|describe|how does).*\b(?:code|kernel)\b",
        _code,
    ),
    (PROFILE, _profile),
    (AUDIT, _one(AuditTask())),
    (JUST_NOW, _one(ShowProgress())),
    (LEDGER, _about_ideas),
    (ROLES, _latest_round),
    (KERNEL, _code),
    (EXPLAIN, _explain),
    (QUALITY, _quality),
    (NOW, _one(ShowProgress())),
    (CODE, _code),
)
