"""Finds the device that a person names: `on my L40S`, `for an RTX 4090`, `on the CPU`.

Any name that looks like a device's is kept: whether it is known here is for others to say.
"""

import re

_NVIDIA = (
    r"g?b[23]00|gh200|h[12]00|h20|h800|a800|a100|v100|p100|t4|l40s?|l4|l20|a10g?|a16|a2|a30|a40"
    r"|a[2456]000(?: ada)?|titan(?: (?:x|v|xp|rtx))?|gtx ?\d{3,4}(?: ?ti)?"
    r"|(?:geforce )?rtx ?(?:pro ?)?(?:a?\d{4})(?: ?(?:ti|super|ada|blackwell))*|"
    r"[345]0[5-9]0(?: ?ti)?"
    r"|jetson(?: (?:agx )?\w+)?|(?:dgx )?spark"
)
_OTHERS = (
    r"mi[123]\d{2}x?|radeon(?: \w+){1,3}|rx ?\d{4}(?: ?xtx?)?|arc ?[ab]\d{3}|"
    r"apple m\d|m[1-4](?: (?:pro|max|ultra))?"
)
_CPUS = r"cpu|processor|xeon|epyc|ryzen|threadripper|grace cpu|core i\d"
_MEMORY = r"(?:[ -]?(?:sxm\d?|pcie|nvl|hbm\d?e?|\d+ ?gb))*"
_DEVICE = re.compile(
    rf"\b(?:nvidia |amd |intel )?(?:(?P<gpu>(?:{_NVIDIA}|{_OTHERS}){_MEMORY})|(?P<cpu>{_CPUS}))\b"
)
# Before a bare name that could be something else (`m2`, `a2`, `cpu`), one of these is said.
_PLACED = re.compile(
    r"\b(?:on|for|with|have|has|target(?:ing)?|using|runs?|auf)"
    r"(?: (?:a|an|the|my|our|this|one|nvidia|amd|intel|apple|tesla|meine[rmn]?|der|dem|einer?))* $"
)
_UNLIKELY = re.compile(r"^(?:m[1-4]|a2|a16|t4|l4|cpu|processor|spark|[345]0[5-9]0)$")


def device_in(words: str) -> str:
    """The device's name as it is usually written; "" where none is named."""
    for match in _DEVICE.finditer(words):
        name = (match["gpu"] or match["cpu"]).strip()
        if _UNLIKELY.match(name) and not _PLACED.search(words[: match.start()]):
            continue
        return _usual(name)
    return ""


def is_only_device(words: str) -> bool:
    """Whether a clause says nothing but which device is meant."""
    rest = _DEVICE.sub(" ", words)
    rest = re.sub(
        r"\b(?:i|we|have|has|use|using|run|running|it|on|for|with|a|an|the|my|our|to|is|gpu|card|"
        r"device|nvidia|target|targeting|will|be|should|this|that|machine|server|one|of)\b",
        " ",
        rest,
    )
    return bool(device_in(words)) and not re.search(r"\w", rest)


def _usual(name: str) -> str:
    if name in ("cpu", "processor"):
        return "CPU"
    capital = {"jetson", "titan", "radeon", "spark", "xeon", "epyc", "ryzen", "threadripper"}
    parts = name.replace("geforce ", "").split()
    usual = [part.capitalize() if part in capital else _upper(part) for part in parts]
    return re.sub(r"^(RTX|GTX)(?=\d)", r"\1 ", " ".join(usual))


def _upper(part: str) -> str:
    kept = {"ti": "Ti", "super": "SUPER", "ada": "Ada", "pcie": "PCIe", "apple": "Apple"}
    return kept.get(part, part.upper())
