"""Extensions from outside the package: recipes, rates, noise, modes, layers, models, losses and datasets by name.

    import crowdml

    crowdml.register("heavy-ball", HEAVY_BALL)      # a Recipe
    crowdml.register("cosine", CosineRate)          # a RateSettings class

A task file may then say `kind = "heavy-ball"`. Programs that import nothing of one's own, such as `crowdml simulate`
and `crowdml serve`, learn of extensions in two ways, both in the hands of whoever starts them. What arrives over the
network never says what is imported.

- `CROWDML_PLUGINS=heavy_ball.py,package.module`: files and modules to import, which register by themselves;
- entry points of installed packages, in the groups `crowdml.recipes`, `crowdml.rates`, `crowdml.noise`,
  `crowdml.modes`, `crowdml.layers`, `crowdml.models`, `crowdml.user-models`, `crowdml.losses` and
  `crowdml.datasets`, each named as a task file will name it.

Both are looked at when the first task is read, so that nothing else has to wait for them.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from operator import attrgetter
from pathlib import Path
from typing import Any

from crowdml.algorithms.conformity import OUTSIDE
from crowdml.algorithms.rates import RATES, RateSettings
from crowdml.algorithms.recipe import Recipe
from crowdml.algorithms.recipes import RECIPES
from crowdml.core import BadInput, Registry, Settings, record
from crowdml.core.settings import rebuild
from crowdml.models import MODELS
from crowdml.models.adapters import USER_MODELS, UserModel
from crowdml.models.kinds import ModelSettings
from crowdml.models.layers import LAYERS, LayerSettings
from crowdml.models.losses import LOSSES
from crowdml.privacy import MODES
from crowdml.privacy.noise.laws import MECHANISMS, SUM_LAWS, NoiseLaw, add_law
from crowdml.task.task import ALGORITHMS, USER_MODEL, Task

VARIABLE = "CROWDML_PLUGINS"


def register(name: str, thing: Any) -> None:
    """Make something known under a name, as a task file will say it. The same again changes nothing.

    Args:
        name: A name that is free.
        thing: A `Recipe`; a class of `RateSettings`, `LayerSettings` or `ModelSettings`; a `NoiseLaw`; a `Source` of
            rows, or a function without arguments that returns a `Dataset`; a function `(target, ops)` that returns a
            `Loss`; a model of your own, such as a `crowdml.FlaxModel`; a privacy mode, which is a function
            `(settings, releases, model)` that returns a `Plan`.

    Raises:
        BadInput: The name is taken, or the thing misses something; says what.
    """
    if not isinstance(name, str) or not name or name != name.strip().lower() or " " in name:
        raise BadInput(f"{name!r} is no name", where="register", hint='small letters and hyphens, such as "heavy-ball"')
    for kind in KINDS.values():
        if kind.fits(thing):
            kind.add(name, thing)
            return
    raise BadInput(
        f'"{name}": {_a_or_an(type(thing).__name__)} cannot be registered',
        where="register",
        hint="it may be one of: " + "; ".join(kind.what for kind in KINDS.values()),
    )


# What can be registered.


@record
class Kind:
    """One kind of extension.

    Attributes:
        what: What it is, in words.
        fits: Tells whether a thing is one.
        take: Checks one and makes it known.
    """

    what: str
    fits: Callable[[Any], bool]
    take: Callable[[str, Any], None]

    def add(self, name: str, thing: Any) -> None:
        """Take a thing, unless it is there already: a module may register what is an entry point besides."""
        if _REGISTERED.get((self.what, name)) is not thing:
            self.take(name, thing)
            _REGISTERED[self.what, name] = thing
            if not getattr(_LOADING_NOW, "by_plugins", False):
                _BY_HAND.add((self.what, name))


_REGISTERED: dict[tuple[str, str], Any] = {}
_BY_HAND: set[tuple[str, str]] = set()
_LOADING_NOW = threading.local()


def registered_here() -> bool:
    """Tell whether something beside rows was registered that another process would not find by itself."""
    return any(what != KINDS["datasets"].what for what, _ in _BY_HAND)


def _is_class_of(base: type) -> Callable[[Any], bool]:
    return lambda thing: isinstance(thing, type) and issubclass(thing, base) and thing is not base


def _takes(arguments: int) -> Callable[[Any], bool]:
    """Tell functions that can be called with so many arguments."""

    def fits(thing: Any) -> bool:
        if not callable(thing) or isinstance(thing, type):
            return False
        try:
            inspect.signature(thing).bind(*[None] * arguments)
        except (TypeError, ValueError):
            return False
        return True

    return fits


def _settings(registry: Registry[Any], noun: str) -> Callable[[str, Any], None]:
    def take(name: str, kind: Any) -> None:
        _require_kind(name, kind, noun)
        if inspect.isabstract(kind) or not callable(getattr(kind, "build", None)):
            raise BadInput(f'the {noun} "{name}" has no function build', where="register")
        registry.add(name, kind)
        OUTSIDE.add((noun, name))
        rebuild(Task, registry)

    return take


def _require_kind(name: str, settings: Any, noun: str) -> None:
    """Refuse settings that a task file could not choose by this name."""
    field = settings.model_fields.get("kind")
    if field is None or field.default != name:
        raise BadInput(
            f'the {noun} "{name}": its settings are not of this kind',
            where="register",
            hint=f'they begin with kind: Literal["{name}"] = "{name}"',
        )


def _take_recipe(name: str, recipe: Any) -> None:
    if not _is_class_of(Settings)(recipe.settings):
        raise BadInput(f'the recipe "{name}": settings is no class of Settings', where="register")
    _require_kind(name, recipe.settings, "recipe")
    if not callable(recipe.build):
        raise BadInput(f'the recipe "{name}" has no function build', where="register")
    try:
        defaults = recipe.settings()
    except Exception as error:  # whatever somebody else's code raises
        raise BadInput(
            f'the recipe "{name}": its settings do not stand by themselves: {_one_line(error)}',
            where="register",
            hint="every setting has a default",
        ) from None
    for number, path in recipe.hyper.items():
        try:
            float(attrgetter(path)(defaults))
        except (AttributeError, TypeError, ValueError) as error:
            raise BadInput(
                f'the recipe "{name}": hyper says that "{number}" is {path}, which is no number of its settings: '
                f"{_one_line(error)}",
                where="register",
                hint='such as hyper={"rate": "rate.c"}',
            ) from None
    ALGORITHMS.add(name, recipe.settings)
    RECIPES.add(name, recipe)
    OUTSIDE.add(("recipe", name))
    rebuild(Task, ALGORITHMS)


def _take_law(name: str, law: NoiseLaw) -> None:
    if law.name != name:
        raise BadInput(f'the noise law "{law.name}" cannot be called "{name}"', where="register", hint="one name")
    if law.order not in (1, 2):
        raise BadInput(f'the noise law "{name}": its norm is 1 or 2, not {law.order}', where="register")
    if law.on_grid and (not law.on_grid.integer or law.on_grid.order != law.order):
        raise BadInput(
            f'the noise law "{name}": on_grid is no law of integers in the same norm',
            where="register",
            hint="such as on_grid=DISCRETE_LAPLACE for order=1, ROUNDED_GAUSSIAN for order=2",
        )
    add_law(law)


def _take_loss(name: str, loss: Any) -> None:
    LOSSES.add(name, loss)
    OUTSIDE.add(("loss", name))


def _take_user_model(name: str, model: UserModel) -> None:
    USER_MODELS.add(name, model)
    OUTSIDE.add((USER_MODEL, name))


def _is_source(thing: Any) -> bool:
    from crowdml.data import Source

    return isinstance(thing, Source)


def _take_source(name: str, thing: Any) -> None:
    from crowdml.data import DATASETS, Source

    if _is_source(thing):
        DATASETS.add(name, thing)
    else:
        # Rows are looked at when somebody asks for them: a device never does.
        DATASETS.add_lazy(name, lambda: Source.of_function(name, thing))


KINDS = {
    "recipes": Kind(what="a Recipe", fits=lambda thing: isinstance(thing, Recipe), take=_take_recipe),
    "rates": Kind(what="a class of RateSettings", fits=_is_class_of(RateSettings), take=_settings(RATES, "rate")),
    "noise": Kind(what="a NoiseLaw", fits=lambda thing: isinstance(thing, NoiseLaw), take=_take_law),
    "layers": Kind(what="a class of LayerSettings", fits=_is_class_of(LayerSettings), take=_settings(LAYERS, "layer")),
    "models": Kind(what="a class of ModelSettings", fits=_is_class_of(ModelSettings), take=_settings(MODELS, "model")),
    "user-models": Kind(
        what="a JaxModel, FlaxModel, EquinoxModel or TorchModel",
        fits=lambda thing: isinstance(thing, UserModel),
        take=_take_user_model,
    ),
    "datasets": Kind(
        what="a Source, or a function without arguments that returns a Dataset",
        fits=lambda thing: _is_source(thing) or _takes(0)(thing),
        take=_take_source,
    ),
    "modes": Kind(what="a function (settings, releases, model) that returns a Plan", fits=_takes(3), take=MODES.add),
    "losses": Kind(what="a function (target, ops) that returns a Loss", fits=_takes(2), take=_take_loss),
}
"""What can be registered; the entry points of a kind are in the group `crowdml.` and its name."""

GROUPS = tuple(f"crowdml.{name}" for name in KINDS)


def require_extensions(definition: Mapping[str, Any]) -> None:
    """Refuse a signed task that names what this machine does not have; what it names is never looked for.

    Args:
        definition: What was signed, not checked yet.
    """
    layers = _at(definition, "model", "layers")
    needed: list[tuple[str, Any, Registry[Any]]] = [
        ("recipe", _at(definition, "algorithm", "kind"), ALGORITHMS),
        *(("rate", _at(definition, "algorithm", key, "kind"), RATES) for key in ("rate", "server")),
        ("privacy mode", _at(definition, "privacy", "mode"), MODES),
        ("noise law", _at(definition, "privacy", "mechanism"), MECHANISMS),
        ("noise law", _at(definition, "secure-aggregation", "law"), SUM_LAWS),
        ("model", _at(definition, "model", "kind"), MODELS),
        *(("layer", _at(layer, "kind"), LAYERS) for layer in (layers if isinstance(layers, list) else ())),
        *(("loss", _at(definition, "model", key), LOSSES) for key in ("loss", "top")),
    ]
    for noun, name, registry in needed:
        if isinstance(name, str) and name not in registry:
            raise BadInput(
                f'this task needs the {noun} "{name[:64]}", which this machine does not have',
                hint=f"install the package that brings it, or name its file: {VARIABLE}=FILE.py; ask the operator",
            )


def _at(content: Any, *keys: str) -> Any:
    for key in keys:
        content = content.get(key) if isinstance(content, Mapping) else None
    return content


# What is registered without anybody's import.

_LOADED: set[str] = set()
_NAMED: list[str] = []
_LOADING = threading.RLock()


def loaded_plugins() -> list[str]:
    """Return the files and modules that `CROWDML_PLUGINS` named when they were loaded; files by their whole path."""
    return list(_NAMED)


def load_plugins() -> None:
    """Register what `CROWDML_PLUGINS` names and what installed packages bring along; each once.

    Raises:
        BadInput: Something cannot be loaded; says what, and whose it is.
    """
    with _LOADING:
        for label, mend, load in _found():
            if label in _LOADED:
                continue
            _LOADED.add(label)  # before it is loaded: it may read a task itself
            _LOADING_NOW.by_plugins = True
            try:
                load()
            except BadInput as error:
                _LOADED.discard(label)
                raise BadInput(f"{label}: {error.what}", hint=error.hint or mend) from None
            except (Exception, SystemExit) as error:  # whatever somebody else's code raises
                _LOADED.discard(label)
                raise BadInput(f"{label} cannot be loaded: {_one_line(error)}", hint=mend) from None
            finally:
                _LOADING_NOW.by_plugins = False


def _found() -> Iterator[tuple[str, str, Callable[[], None]]]:
    """Find what there is to load: what to call it, what to do if it fails, and how to load it."""
    for text in os.environ.get(VARIABLE, "").split(","):
        if text.strip():
            yield f"{VARIABLE}: {text.strip()}", f"mend it, or leave it out of {VARIABLE}", _import(text.strip())
    for group, point in _entry_points(tuple(map(str, sys.path))):
        package = point.dist.name if point.dist else point.value
        label = f'the entry point "{point.name}" of {group} in the package {package}'
        yield label, f"mend or uninstall {package}", _entry(point, group)


@functools.lru_cache(maxsize=8)
def _entry_points(_where: tuple[str, ...]) -> tuple[tuple[str, metadata.EntryPoint], ...]:
    """Ask all installed packages what they bring along: once for the same folders, since that reads a file of each."""
    everything = metadata.entry_points()
    return tuple((group, point) for group in GROUPS for point in everything.select(group=group))


def _import(name: str) -> Callable[[], None]:
    """Import a module by its name, or by its file where it ends in .py."""

    def load() -> None:
        if not name.endswith(".py"):
            importlib.import_module(name)
            _NAMED.append(name)
            return
        path = Path(name).resolve()
        if not path.is_file():
            raise BadInput("there is no such file", hint=f"looked for {path}")
        _NAMED.append(str(path))
        known = sys.modules.get(path.stem)
        if known is not None and getattr(known, "__file__", None) == str(path):
            return
        spec = importlib.util.spec_from_file_location(path.stem if known is None else f"crowdml_{path.stem}", path)
        assert spec is not None and spec.loader is not None  # noqa: S101  the name ends in .py
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[spec.name]
            raise

    return load


def _entry(point: metadata.EntryPoint, group: str) -> Callable[[], None]:
    def load() -> None:
        kind, thing = KINDS[group.removeprefix("crowdml.")], point.load()
        if not kind.fits(thing):
            raise BadInput(f"{point.value} is {_a_or_an(type(thing).__name__)}, not {kind.what}")
        kind.add(point.name, thing)

    return load


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _a_or_an(noun: str) -> str:
    return f"an {noun}" if noun[0].lower() in "aeiou" else f"a {noun}"
