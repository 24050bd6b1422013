"""Plain names of kernels: tools print library kernels with templates, namespaces and arguments."""


def plain_name(printed: str) -> str:
    """The function's own name, as `softmax_rows` or `cunn_SoftMaxForwardReg`.

    What stands in brackets of any kind is dropped first: template arguments hold names too.
    """
    kept, depth = "", 0
    for letter in _without_anonymous(printed):
        if letter in "<([{":
            if letter == "(" and depth == 0:
                break  # the arguments; what follows says nothing of the name
            depth += 1
        elif letter in ">)]}":
            depth = max(0, depth - 1)
        elif depth == 0:
            kept += letter
    words = kept.split()
    name = words[-1].rpartition("::")[2] if words else ""
    return "".join(c if c.isalnum() or c == "_" else "_" for c in name) or "kernel"


def _without_anonymous(printed: str) -> str:
    for nameless in ("(anonymous namespace)::", "<unnamed>::"):
        printed = printed.replace(nameless, "")
    return printed.replace("operator()", "call")
