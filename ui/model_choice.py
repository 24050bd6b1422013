"""Which model thinks, from flags and the environment.

Without an explicit address nothing is ever sent: not what a library would read from OPENAI_BASE_URL
or OPENAI_API_KEY counts, only --base-url, KERNELWRIGHT_BASE_URL and a profile's own address. A key
goes to the address that it was given for and nowhere else.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from kernelwright.agents.roles import ROLES
from kernelwright.profiles.load import (
    ModelProfile,
    Models,
    all_models,
    model_profile,
    read_model_profile,
)
from kernelwright.ui.complaints import LACKING, Complaint

MODEL, BASE_URL, API_KEY = "KERNELWRIGHT_MODEL", "KERNELWRIGHT_BASE_URL", "KERNELWRIGHT_API_KEY"
MANUAL = "manual"


@dataclass(frozen=True)
class Choice:
    """What the person said about models; limits are of the whole run."""

    model: str | None = None
    base_url: str | None = None
    roles: tuple[str, ...] = field(default=())
    tokens: int | None = None
    usd: float | None = None


def chosen_models(choice: Choice) -> Models | None:
    """The models of all roles; None, which is the playbook, when none is named.

    Raises:
        Complaint: A model without an address, an unknown role or profile, a key that is not set,
            or a limit in dollars on a model without a price.
    """
    per_role = dict(_of_role(item) for item in choice.roles)
    name = choice.model or os.environ.get(MODEL) or None
    if name is None and not per_role:
        if choice.base_url:
            raise Complaint("--base-url says where, but not which model: give --model too")
        return None
    missing = [role for role in ROLES.names if role not in per_role]
    if name is None and missing:
        raise Complaint(f"no model for {', '.join(missing)}: give --model for the other roles")
    profiles = {role: profile_of(per_role.get(role) or name or "", choice) for role in ROLES.names}
    for profile in profiles.values():
        _check(profile, choice)
    return Models.model_validate(profiles)


def other_models(choice: Choice) -> Models | None:
    """Models that a run goes on with instead of its own; what the environment says is no order."""
    if choice.model is None and not choice.roles and choice.base_url is None:
        return None
    return chosen_models(choice)


def profile_of(name: str, choice: Choice) -> ModelProfile:
    """What a name means: a person, a profile (`ollama:qwen3:8b` names its model), or a model."""
    if name == MANUAL:
        return ModelProfile(name=MANUAL, kind="manual", model=MANUAL)
    known, _, model = name.partition(":")
    try:
        if name.endswith(".toml"):
            return _addressed(read_model_profile(Path(name)), "", choice)
        if known in all_models():
            return _addressed(model_profile(known), model, choice)
    except ValueError as error:
        raise Complaint(str(error)) from None
    url = choice.base_url or os.environ.get(BASE_URL)
    if not url:
        profiles = ", ".join(sorted(all_models()))
        raise Complaint(
            f"where is the model {name!r}? give --base-url or set {BASE_URL}; "
            f"profiles that know an address are {profiles}, and {MANUAL} asks you"
        )
    return ModelProfile(name=name, model=name, base_url=url, api_key_env=API_KEY)


def _addressed(profile: ModelProfile, model: str, choice: Choice) -> ModelProfile:
    """A profile with the model and the address that the person gave."""
    update: dict[str, str] = {"model": model} if model else {}
    own = profile.base_url
    url = choice.base_url or (None if own else os.environ.get(BASE_URL))
    if url and url != own:
        # The profile's key belongs to its own address.
        update |= {"base_url": url, "api_key_env": API_KEY}
    found = profile.model_copy(update=update)
    if found.kind == "endpoint" and not found.model:
        raise Complaint(f"which model of {found.name}? give --model {found.name}:NAME")
    if found.kind == "endpoint" and not found.base_url:
        raise Complaint(f"where is {found.name}? give --base-url or set {BASE_URL}")
    return found


def _of_role(text: str) -> tuple[str, str]:
    role, _, name = text.partition("=")
    if role not in ROLES.names or not name:
        known = ", ".join(ROLES.names)
        raise Complaint(f"--model-for wants ROLE=NAME with a role of {known}: {text!r}")
    return role, name


def _check(profile: ModelProfile, choice: Choice) -> None:
    """Say before any work is done what a model lacks."""
    if profile.kind == "manual":
        return
    if not profile.base_url.startswith(("http://", "https://")):
        raise Complaint(f"{profile.base_url!r} is no address: it begins with http:// or https://")
    if urlsplit(profile.base_url).username:
        raise Complaint(f"an address is kept with the run: put the key into {API_KEY} instead")
    named = profile.api_key_env
    if named and named != API_KEY and not os.environ.get(named):
        raise Complaint(f"{profile.name} needs a key: export {named}=...", LACKING)
    prices = (profile.usd_per_million_input, profile.usd_per_million_output)
    if choice.usd is not None and None in prices:
        raise Complaint(
            f"--max-usd needs the prices of {profile.name}: "
            "write them into a profile and give its path as --model, or use --max-tokens"
        )
