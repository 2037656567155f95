# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Recipes: options of train.yml in a file, and a map of a script's settings that is easy to change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from .readers import InvalidOption

FOLDER = Path(__file__).resolve().parents[3] / "files" / "recipes"
CONFIG = "config"
"""A key of recipes only: each of its entries is appended to the script's arguments as KEY=VALUE."""
_NOT_IN_RECIPES = ("recipe", "recipe_config", "run_id", "resume")


def known() -> list[str]:
    return sorted(file.stem for file in FOLDER.glob("*.yml"))


def arguments(name: str, changes: Mapping[str, Any], allowed: Iterable[str]) -> dict[str, Any]:
    """Return the recipe's values of train.yml's options. `changes` override its `config`; `allowed` are the options."""
    recipe = _read(name)
    takes = [argument for argument in allowed if argument not in _NOT_IN_RECIPES]
    unknown = sorted(set(recipe) - {*takes, CONFIG})
    if unknown:
        raise InvalidOption(f"it has the unknown key {', '.join(unknown)}; a recipe takes {CONFIG}, {', '.join(takes)}")
    config = recipe.pop(CONFIG, {})
    if not isinstance(config, Mapping):
        raise InvalidOption(f"its {CONFIG} is no map")
    if changes and not config:
        raise InvalidOption(
            "it has no config that recipe_config could change, give the script's arguments as script_args"
        )
    script_args = recipe.get("script_args", [])
    if not isinstance(script_args, list):
        raise InvalidOption("its script_args are no list")
    words = [f"{key}={_literal(value)}" for key, value in {**config, **changes}.items()]
    return {**recipe, "script_args": [*script_args, *words]} if words else recipe


def _read(name: str) -> dict[str, Any]:
    is_own = "/" in name or name.endswith((".yml", ".yaml"))
    file = Path(name).expanduser() if is_own else FOLDER / f"{name}.yml"
    try:
        recipe = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidOption(
            f"there is no such recipe, give {', '.join(known())} or the path of a file of your own"
        ) from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidOption(f"it cannot be read ({str(error).splitlines()[0]})") from None
    if not isinstance(recipe, dict) or not all(isinstance(key, str) for key in recipe):
        raise InvalidOption("it is no map of train.yml's arguments")
    return recipe


def _literal(value: Any) -> str:
    """Return a value as such scripts read it: text as it is, everything else as a Python literal."""
    return value if isinstance(value, str) else repr(value).replace(" ", "")
