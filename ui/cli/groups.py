"""Commands about clusters and about people: what can be asked. What is done stands beside."""

import typer

from kernelwright.ui.cli.options import JoinedCluster, Person, RunDir

clusters = typer.Typer(help="Ray clusters to search on.", rich_markup_mode=None)


@clusters.command("status")
def cluster_status(cluster: JoinedCluster = None) -> None:
    """Say what a cluster holds: machines, and devices by their kind."""
    from kernelwright.ui.cli.cluster import status

    status(cluster)


@clusters.command("doctor")
def cluster_doctor(cluster: JoinedCluster = None) -> None:
    """Say what works on a cluster: joining it, its token, the judge of every device."""
    from kernelwright.ui.cli.cluster import doctor

    raise typer.Exit(doctor(cluster))


people = typer.Typer(help="Who may log in to the chat.", rich_markup_mode=None)


@people.command("add")
def add_user(name: Person, run_dir: RunDir = None) -> None:
    """Let somebody log in, or change their password; it is asked for, or read from stdin."""
    from kernelwright.ui.cli.chat import add_person

    add_person(name, run_dir)


@people.command("remove")
def remove_user(name: Person, run_dir: RunDir = None) -> None:
    """Let somebody log in no longer; their conversations and runs stay."""
    from kernelwright.ui.cli.chat import remove_person

    remove_person(name, run_dir)


@people.command("list")
def list_users(run_dir: RunDir = None) -> None:
    """List who may log in."""
    from kernelwright.ui.cli.chat import list_people

    list_people(run_dir)
