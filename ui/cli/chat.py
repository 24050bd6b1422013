"""Opening the chat, and saying who may come in."""

import getpass
import os
import sys
import time
from pathlib import Path
from typing import Literal

from kernelwright.ui.chat.server.people import People, PersonError
from kernelwright.ui.chat.settings import ChatSettings
from kernelwright.ui.complaints import Complaint
from kernelwright.ui.model_choice import Choice, chosen_models
from kernelwright.ui.terminal.output import console, remarks

DATABASE = "KERNELWRIGHT_DATABASE"


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
            models=chosen_models(choice),
        )
    )


def add_person(name: str, home: Path | None) -> None:
    """Let somebody log in, or change their password."""
    people = _people(home)
    changed = name in people.all()
    try:
        people.add(name, _password(), time.time())
    except PersonError as error:
        raise Complaint(str(error)) from None
    remarks().print(f"{name} has a new password" if changed else f"{name} may log in")


def remove_person(name: str, home: Path | None) -> None:
    """Let somebody log in no longer."""
    try:
        _people(home).remove(name)
    except PersonError as error:
        raise Complaint(str(error)) from None
    remarks().print(f"{name} may log in no longer; their runs stay")


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
