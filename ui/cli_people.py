"""Commands about people: who may log in to the chat."""

import typer

from ui.options import Person, RunDir

app = typer.Typer(help="Who may log in to the chat.", rich_markup_mode=None)


@app.command("add")
def add_user(name: Person, run_dir: RunDir = None) -> None:
    """Let somebody log in, or change their password; it is asked for, or read from stdin."""
    from ui.commands.chat import add_person

    add_person(name, run_dir)


@app.command("remove")
def remove_user(name: Person, run_dir: RunDir = None) -> None:
    """Let somebody log in no longer; their conversations and runs stay."""
    from ui.commands.chat import remove_person

    remove_person(name, run_dir)


@app.command("list")
def list_users(run_dir: RunDir = None) -> None:
    """List who may log in."""
    from ui.commands.chat import list_people

    list_people(run_dir)
