"""Opening the chat, and saying who may come in."""

import getpass
import json
import os
import sys
import time
import urllib.request
from pathlib import Path
from typing import Literal

from kernelwright.tools.types import Value
from kernelwright.ui.chat.server.people import People, PersonError
from kernelwright.ui.chat.settings import ChatSettings
from kernelwright.ui.complaints import LACKING, Complaint
from kernelwright.ui.model_choice import Choice, chosen_models
from kernelwright.ui.terminal.output import console, remarks

DATABASE = "KERNELWRIGHT_DATABASE"
ANSWERS_WITHIN_S = 10.0


def chat(
    host: str,
    port: int,
    headless: bool,
    home: Path | None,
    database: str | None,
    target: Literal["auto", "cuda", "cpu"],
    search: str,
    ready: int,
    choice: Choice,
    *,
    load_seconds: float = 60.0,
) -> None:
    """Serve the chat until somebody ends it."""
    from kernelwright.profiles.load import search_profile
    from kernelwright.ui.chat.server.serve import serve

    try:
        search_profile(search)
    except ValueError as error:
        raise Complaint(str(error)) from None
    serve(
        ChatSettings(
            home=_settings(home).home,
            host=host,
            port=port,
            headless=headless,
            database=database or os.environ.get(DATABASE, ""),
            target=target,
            search=search,
            ready=ready,
            load_seconds=load_seconds,
            models=chosen_models(choice),
        )
    )


def add_person(name: str, home: Path | None) -> None:
    """Let somebody log in, or change their password, and say what a running chat makes of it.

    Raises:
        Complaint: They cannot be added; or they were, and the chat serves nobody until something
            is mended here, which it says.
    """
    people = _people(home)
    before = people.all()
    try:
        people.add(name, _password(), time.time())
    except PersonError as error:
        raise Complaint(str(error)) from None
    done = f"{name} has a new password" if name in before else f"{name} may log in"
    running = _running(home, done)
    if not before:
        effect = "it asks everybody to log in from now on, and whoever was there is out"
    elif name in before:
        effect = f"it asks for it from now on, and whoever was there as {name} is out"
    else:
        effect = "it knows of it"
    _say_effect(done, running, effect)
    _say_lacks(home, done, running)


def remove_person(name: str, home: Path | None) -> None:
    """Let somebody log in no longer, and say what a running chat makes of it."""
    people = _people(home)
    try:
        people.remove(name)
    except PersonError as error:
        raise Complaint(str(error)) from None
    done = f"{name} may log in no longer; their runs stay"
    running = _running(home, done)
    effect = f"whoever was there as {name} is out"
    if running and not running.locked:
        effect += ". Nobody is left who may log in, so it is open to whoever is at this machine"
    _say_effect(done, running, effect)


class Running(Value):
    """A chat that is served now, as it answered; `locked` is whether it asks to log in."""

    address: str
    locked: bool


def _running(home: Path | None, done: str) -> Running | None:
    """The chat that is served from a home, asked what it does now; None where there is none."""
    from kernelwright.ui.chat.server.serve import running

    address = running(_settings(home).folder)
    if address is None:
        return None
    # Straight to this machine, whatever proxy the shell names.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{address}/auth/config", timeout=ANSWERS_WITHIN_S) as answer:
            return Running(address=address, locked=bool(json.load(answer)["passwordAuth"]))
    except (OSError, ValueError, KeyError) as error:
        raise Complaint(
            f"{done}, but the chat that is running{f' at {address}' if address else ''} did not "
            f"say that it knows ({error}): end it and start it again",
            LACKING,
        ) from None


def _say_effect(done: str, running: Running | None, effect: str) -> None:
    if running is None:
        remarks().print(f"{done}. No chat is running here; the next one begins with that")
    else:
        remarks().print(f"{done}. The chat at {running.address} is running: {effect}")


def _say_lacks(home: Path | None, done: str, running: Running | None) -> None:
    """Say what is missing for files of several people.

    Raises:
        Complaint: A chat is running, and takes no files for that.
    """
    from kernelwright.ui.chat.server.people import lacks

    if not (words := lacks(_settings(home))):
        return
    if running is None:
        remarks().print(f"Before it can be started: {words}", markup=False)
        return
    raise Complaint(
        f"{done}, and the chat is locked. But it takes no files until it is started again: {words}",
        LACKING,
    )


def list_people(home: Path | None) -> None:
    """Print who may log in."""
    people = _people(home).all()
    if not people:
        console().print("nobody was added: the chat is open, on this machine only")
    for name in sorted(people):
        console().print(name, markup=False)


def _settings(home: Path | None) -> ChatSettings:
    return ChatSettings() if home is None else ChatSettings(home=home.absolute())


def _people(home: Path | None) -> People:
    return People(_settings(home).folder)


def _password() -> str:
    """Ask twice at a terminal; otherwise the first line of what comes in."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    first = getpass.getpass("Password: ")
    if getpass.getpass("Again: ") != first:
        raise Complaint("these were two different passwords")
    return first
