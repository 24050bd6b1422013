"""A device that the person named and that is not the one present: what can be done all the same."""

from kernelwright.graphs.run_view.wording import quiet
from kernelwright.profiles.load import Hardware, hardware_profile


def named(gpu: str) -> Hardware | None:
    """The device of that name, as far as profiles know it."""
    try:
        return hardware_profile(gpu)
    except ValueError:
        return None


def other_device(gpu: str, present: Hardware) -> tuple[str, ...]:
    """What to say where the named device is not the present one; nothing where it is."""
    if not gpu:
        return ()
    wanted = named(gpu)
    if wanted is None:
        return (
            f"I know no device called {quiet(gpu, 40)}, so everything below is for "
            f"{quiet(present.name, 60)}, which is what this machine has.",
        )
    if wanted.name == present.name:
        return ()
    return (
        f"You named {wanted.name}; this machine has {quiet(present.name, 60)}. What I can do: "
        f"search and measure here, which tells nothing about times on {wanted.name}; "
        f"or prepare bundles that are carried to a host with {wanted.name} and measured there, "
        f"with `kernelwright optimize FILE --executor batch --gpu {quiet(gpu, 40)}`, where kernels "
        "are compiled and checked statically for it beforehand.",
    )
