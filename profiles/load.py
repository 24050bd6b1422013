"""Reads profiles: hardware, models and search settings, TOML files checked when they are loaded.

Errors name the file, the key and the value:
`profiles/search/quick.toml: ideas_per_round must be at least 1, but it was 0`.

A model's profile says where it is reached, what it may be asked, and what it costs.
`profiles/models/*.toml` hold servers and models that people use; a command line or the environment
can name any other. Prices carry the date on which they were read. Keys never stand here: a profile
names the environment variable that holds one.

Not here: detecting the device at hand (`tools.hardware`).
"""

import tomllib
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

# How a model calls tools: by the server's own means, in its text, or not at all.
ToolMode = Literal["native", "text", "none"]
DeviceKind = Literal["cuda", "cpu"]


class ModelProfile(BaseModel):
    """One model behind one OpenAI-compatible endpoint, or a person who answers by files.

    `schema_mode` says how a structured answer is asked for beyond the words of the prompt: not at
    all, or by the server's `response_format`. `tools` says how the model calls tools: by the
    server's own means, as JSON in its answers, or not at all, and then it is told their facts.
    `timeout_s` is for one attempt; `retry_wait_s` is the first pause between attempts and doubles
    with each. `requests_at_once` are of all roles, None for any number: a model on one's own
    machine may answer one at a time, and waiting for a turn is no part of the attempt's time.
    `extra_body` goes to the server as it is.
    Prices are US dollars per million tokens as of `priced_on`; None is unknown, 0 is free.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: Literal["endpoint", "manual"] = "endpoint"
    model: str = ""
    base_url: str = ""
    api_key_env: str = ""
    context_tokens: int = Field(default=32_768, ge=1024)
    reply_tokens: int = Field(default=8192, ge=64)
    temperature: float | None = Field(default=None, ge=0)
    timeout_s: float = Field(default=300.0, gt=0)
    retries: int = Field(default=4, ge=0)
    retry_wait_s: float = Field(default=1.0, ge=0)
    requests_per_second: float | None = Field(default=None, gt=0)
    requests_at_once: int | None = Field(default=None, ge=1)
    stream: bool = True
    stream_usage: bool = True
    schema_mode: Literal["text", "json_object", "json_schema"] = "text"
    tools: ToolMode = "native"
    reasoning_effort: str | None = None
    extra_body: dict[str, JsonValue] = Field(default_factory=dict)
    usd_per_million_input: float | None = Field(default=None, ge=0)
    usd_per_million_output: float | None = Field(default=None, ge=0)
    priced_on: date | None = None
    source: str = ""


class Models(BaseModel):
    """Which model answers for which role; roles beyond these five stand beside them by name."""

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, ModelProfile] = Field(init=False)

    planner: ModelProfile
    coder: ModelProfile
    profiler: ModelProfile
    critic: ModelProfile
    strategist: ModelProfile

    @classmethod
    def same(cls, profile: ModelProfile) -> "Models":
        """One model for all roles."""
        return cls(
            planner=profile, coder=profile, profiler=profile, critic=profile, strategist=profile
        )

    @property
    def by_role(self) -> dict[str, ModelProfile]:
        """The profiles by the names of their roles."""
        return dict(self)

    def of(self, role: str) -> ModelProfile:
        """Who answers for a role; one that nobody was named for asks the planner's model."""
        return self.by_role.get(role, self.planner)


HERE = Path(__file__).parent

# What an ablation can switch off: ideas before code, the critic's contrast, the archive of
# elites, evolving prompts, tuning of settings; and by its name any role that has a step of its own.
SearchPart = Literal["ideas", "contrast", "archive", "prompts", "tuning", "tools"]
Held = Literal["searching", "certification", "everything"]
Part = SearchPart | Annotated[str, Field(pattern=r"^role:[a-z_]+$")]


class Hardware(BaseModel):
    """A device as data. Rates are peaks of the data sheet unless `measured` says otherwise.

    `architecture` is what the device compiler is asked for ("sm_90a"). Fields that do not exist
    on a kind of device are None: a CPU has no multiprocessors, a GPU no SIMD width.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: DeviceKind
    source: str
    architecture: str | None = None
    sm_count: int | None = Field(default=None, ge=1)
    shared_kib_per_sm: int | None = None
    shared_kib_per_block: int | None = None
    registers_per_sm: int | None = None
    threads_per_sm: int | None = None
    blocks_per_sm: int | None = None
    cluster_size: int | None = None
    cores: int | None = Field(default=None, ge=1)
    simd_bits: int | None = None
    l1_kib_per_core: int | None = None
    l2_kib_per_core: int | None = None
    cache_mib: float = Field(gt=0, description="last-level cache, shared by the device")
    memory_gib: float = Field(gt=0)
    bandwidth_gb_s: float = Field(gt=0, description="peak bandwidth of memory")
    fp32_tflops: float = Field(gt=0)
    tensor_tflops: float | None = None
    launch_us: float = Field(default=3.0, gt=0, description="cost of one empty launch")
    measured: bool = False
    confirmed: bool = Field(default=False, description="measured twice apart, alike, undisturbed")
    measured_how: str = Field(default="", description="how often, when and how much alike")
    aliases: tuple[str, ...] = ()


class SearchProfile(BaseModel):
    """How much a search may spend and how it spends it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    rounds: int = Field(ge=1)
    ideas_per_round: int = Field(ge=1)
    candidates_per_idea: int = Field(ge=1)
    repairs: int = Field(ge=0)
    patience: int = Field(ge=1, description="rounds without improvement before stopping")
    minimum_rounds: int = Field(
        default=1, ge=1, description="no giving up before that many, unless a plateau is proven"
    )
    round_size: Literal["fixed", "by what is known"] = Field(
        default="fixed",
        description="fixed, as in runs from before it was kept; or fewer ideas and more settings "
        "where predictions have held",
    )
    seconds: float = Field(gt=0, description="how long; of what, says the next one")
    seconds_hold: Held = Field(
        default="certification",
        description="searching alone; with certification; or everything, torch.compile's baseline "
        "and profilers too, as a person means it who says how long",
    )
    profiling_seconds: float = Field(
        default=12.0, ge=0, description="for profilers of the device, beside those of searching"
    )
    tuning_trials: int = Field(ge=0, description="settings tried by the tuner each round")
    finalists: int = Field(ge=1)
    stop_at_floor_fraction: float = Field(gt=0, le=1)
    minimum_gain: float = Field(ge=1.0, description="best before / best after that counts")
    tokens: int | None = Field(default=None, ge=1, description="in and out, of all models")
    usd: float | None = Field(default=None, gt=0, description="spent on models")
    islands: int = Field(default=1, ge=1, description="populations that seldom mix")
    without: tuple[Part, ...] = Field(default=(), description="parts switched off, for ablations")
    rules_steer_by: tuple[Literal["contrast", "archive", "memory"], ...] = Field(
        default=("contrast", "archive", "memory"),
        description="parts that have a say in what is tried where no model thinks, and kernels "
        "that are carried over from other shapes; the default is that of runs from before it was "
        "kept",
    )

    @model_validator(mode="before")
    @classmethod
    def _no_trials_without_tuning(cls, given: object) -> object:
        if isinstance(given, dict) and "tuning" in (given.get("without") or ()):
            return given | {"tuning_trials": 0}
        return given

    def limited(
        self,
        *,
        rounds: int | None = None,
        seconds: float | None = None,
        tokens: int | None = None,
        usd: float | None = None,
    ) -> "SearchProfile":
        """The same with what a person limits; seconds that a person names hold everything.

        Raises:
            ValueError: A limit is not above 0.
        """
        limits = {"rounds": rounds, "seconds": seconds, "tokens": tokens, "usd": usd}
        update: dict[str, object] = {k: v for k, v in limits.items() if v is not None}
        if seconds is not None:
            update["seconds_hold"] = "everything"
        return SearchProfile.model_validate(self.model_dump() | update)


Profile = TypeVar("Profile", bound=BaseModel)


def search_profile(name: str) -> SearchProfile:
    """The search profile of that name; ValueError names the ones that exist."""
    return _read(_find("search", name), SearchProfile)


def hardware_profile(name: str) -> Hardware:
    """The hardware of that name or alias, whatever its case and punctuation; ValueError if none."""
    wanted = _plain(name)
    every = all_hardware()
    for hardware in every.values():
        if wanted in {_plain(hardware.name), *map(_plain, hardware.aliases)}:
            return hardware
    raise ValueError(f"unknown hardware {name!r}; known are {', '.join(sorted(every))}")


def all_hardware() -> Mapping[str, Hardware]:
    """Every hardware profile by its file's name."""
    return {path.stem: _read(path, Hardware) for path in sorted((HERE / "hardware").glob("*.toml"))}


def model_profile(name: str) -> ModelProfile:
    """The model profile of that name; ValueError names the ones that exist."""
    return _read(_find("models", name), ModelProfile)


def read_model_profile(path: Path) -> ModelProfile:
    """A model profile of the person's own; ValueError names file, key and value."""
    return _read(path, ModelProfile)


def all_models() -> tuple[str, ...]:
    """The names of the model profiles."""
    return tuple(path.stem for path in sorted((HERE / "models").glob("*.toml")))


def _find(folder: str, name: str) -> Path:
    path = HERE / folder / f"{name}.toml"
    if path.is_file() and path.parent == HERE / folder:
        return path
    known = ", ".join(sorted(p.stem for p in (HERE / folder).glob("*.toml")))
    raise ValueError(f"unknown {folder} profile {name!r}; known are {known}")


def _read(path: Path, model: type[Profile]) -> Profile:
    shown = f"profiles/{path.parent.name}/{path.name}" if path.is_relative_to(HERE) else str(path)
    try:
        return model.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{shown}: {error}") from None
    except OSError as error:
        raise ValueError(f"{shown}: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{shown}: {key}: {first['msg']}, but it was {first['input']!r}") from None


def _plain(name: str) -> str:
    """Lower case letters and digits only, so that "RTX 4090" and "rtx-4090" are the same."""
    return "".join(c for c in name.lower() if c.isalnum())
