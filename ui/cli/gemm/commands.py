"""`kernelwright gemm`: what can be asked of it. What is done about it stands in `grid`."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()

_SHAPES = (
    "MxNxK, each a size, a list or a doubling range (64..1024x4096x512,768); cuda-l2:COUNT:SEED, "
    "so many drawn from the thousand of CUDA-L2's kind; or a file of lines M N K [layout [batch]]."
)
_OUT = "Records, a JSON line a shape. Without --shapes they are summed up and nothing is measured."


@app.command()
def gemm(
    shapes: Annotated[str, typer.Option(help=_SHAPES)] = "",
    dtype: Annotated[str, typer.Option(help="fp16, bf16 or fp8 (e4m3).")] = "fp16",
    accumulate: Annotated[
        str, typer.Option(help="Sums are kept in fp32, or may be in fp16.")
    ] = "fp32",
    epilogue: Annotated[
        str, typer.Option(help="bias, relu, gelu, gelu_tanh, or bias and one.")
    ] = "",
    layout: Annotated[
        str, typer.Option(help="nn, nt (a linear layer's), tn, tt, or several as in nn,nt.")
    ] = "nt",
    out: Annotated[Path | None, typer.Option(help=_OUT)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what --out has.")] = False,
    candidates: Annotated[int, typer.Option(min=1, help="Screened at most, a shape.")] = 12,
    shape_seconds: Annotated[float, typer.Option(min=1, help="About so long a shape.")] = 10.0,
    seconds: Annotated[float | None, typer.Option(min=1, help="For all of them.")] = None,
    seed: Annotated[int, typer.Option(help="Of every draw of values.")] = 0,
    gpus: Annotated[str, typer.Option(help="Share the shapes: all, or numbers as in 0,1.")] = "",
    report: Annotated[Path | None, typer.Option(help="Write a page with heat maps here.")] = None,
    export: Annotated[
        Path | None, typer.Option(help="Write the chosen kernels as a module to this folder.")
    ] = None,
    also: Annotated[
        list[Path] | None,
        typer.Option(help="More records for --export: of other types, layouts or epilogues."),
    ] = None,
    predict: Annotated[
        str, typer.Option(help="Shapes that were not measured: say what is expected of them.")
    ] = "",
) -> None:
    """Hold kernels for half-precision products against cuBLAS and cuBLASLt, shape by shape."""
    from kernelwright.ui.cli.gemm.grid import Asked, gemm

    gemm(
        Asked(
            shapes=shapes,
            dtype=dtype,
            accumulate=accumulate,
            epilogue=epilogue,
            layout=layout,
            out=out,
            resume=resume,
            candidates=candidates,
            shape_seconds=shape_seconds,
            seconds=seconds,
            seed=seed,
            gpus=gpus,
            report=report,
            export=export,
            also=tuple(also or ()),
            predict=predict,
        )
    )
