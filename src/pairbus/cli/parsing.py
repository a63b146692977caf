"""How values are written on the command line."""

import re

import typer

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZES = {"": 1, "KB": 1024, "MB": 1024**2}


def duration(option: str, text: str) -> float:
    """Read ``90s``, ``15m``, ``1.5h``, ``2d`` or a number of seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text.strip().lower())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a duration; write it as 90s, 15m, 1.5h or 2d", param_hint=option)
    return float(match[1]) * _UNITS[match[2]]


def size(option: str, text: str) -> int:
    """Read ``512``, ``64KB`` or ``1MB``, in steps of 1,024, as bytes."""
    match = re.fullmatch(r"(\d+)\s*(KB|MB|)", text.strip().upper())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a size; write it as 512, 64KB or 1MB", param_hint=option)
    return int(match[1]) * _SIZES[match[2]]
