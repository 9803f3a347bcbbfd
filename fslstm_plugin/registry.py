"""The named parts: heads, feature adapters, transductive modules, methods, backbones, data sets.

The plugin's own parts are named here as ``"module:attribute"`` and imported when they are asked for, so that
listing names costs nothing. Other packages add parts through entry points of the groups
``fslstm_plugin.heads``, ``.adapters``, ``.transduction``, ``.methods``, ``.backbones`` and ``.datasets``:

.. code-block:: toml

    [project.entry-points."fslstm_plugin.heads"]
    centroid = "my_package:CentroidHead"
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib.metadata import Distribution, EntryPoint, EntryPoints, distributions, entry_points
from pkgutil import resolve_name
from reprlib import repr as shortened
from traceback import walk_tb
from typing import Any, TypeVar, overload

from .arguments import options
from .errors import FSLSTMError, PartError, UnknownNameError, UsageError
from .grammar import BATCH_NORM, read_value

T = TypeVar("T")

_NAME, _LONGEST = r"[A-Za-z]\w*(-\w+)*", 60
_used: set[str] = set()  # Packages of which a part was imported.


class Registry:
    """Names of one kind of part, resolved to the object on demand.

    What another package names can be missing, fail while it is imported, or be something else. It is imported only
    where it is asked for, and can stop nothing but what uses it.

    Args:
        kind: The singular, for error messages (``"head"``).
        group: Entry-point group in which other packages name theirs.
        base: ``"module:attribute"`` of the class that parts are subclasses of.
        builtin: The plugin's own parts, name to ``"module:attribute"``.
        instances: Whether parts are instances of it instead. Default False.

    Example:
        >>> {"lssvm", "nn", "rr", "svm"} <= set(HEADS.names())
        True
        >>> HEADS.get("rr").__name__
        'RidgeClassifier'
    """

    def __init__(self, kind: str, group: str, base: str, builtin: Mapping[str, str], instances: bool = False) -> None:
        self.kind, self.group = kind, group
        self._base, self._instances = base, instances
        self._builtin = dict(builtin)
        self._known: dict[type, str] = {}
        self._here: dict[str, Any] = {}  # of this process
        self._beside: Sequence[Registry] = ()  # Whose names are written in the same names of methods.

    @cached_property
    def _others(self) -> dict[str, EntryPoint]:
        """Other packages' parts; a built-in name always means the built-in part."""
        builtin = {name for registry in (self, *self._beside) for name in registry._builtin}
        return {each.name: each for each in _registered(self.group) if each.name not in builtin}

    def names(self) -> list[str]:
        """All registered names, sorted; nothing is imported."""
        return sorted({*self._builtin, *self._here, *self._others})

    @overload
    def register(self, name: str, part: T) -> T: ...

    @overload
    def register(self, name: str) -> Callable[[T], T]: ...

    def register(self, name: str, part: T | None = None) -> T | Callable[[T], T]:
        """Name a part for the rest of the program, where an entry point of a package would be too much.

        A name that was registered so before means the new part from then on, so that a cell of a notebook can be run
        again.

        Args:
            name: At most 60 letters, digits, ``-`` and ``_``, beginning with a letter.
            part: The part. Default None: what is returned is a decorator of a class.

        Raises:
            UsageError: If the name is not of this form, or means something else where it would be written, or the part
                is of another kind.

        Example:
            >>> from fslstm_plugin.heads import PrototypeClassifier
            >>> @HEADS.register("nearest-mean")
            ... class Nearest(PrototypeClassifier):
            ...     pass
            >>> HEADS.name_of(Nearest()), "nearest-mean" in HEADS.names()
            ('nearest-mean', True)
            >>> HEADS.forget("nearest-mean")
        """
        if not isinstance(name, str) or len(name) > _LONGEST or not re.fullmatch(_NAME, name, re.ASCII):
            raise UsageError(
                f"The name of a {self.kind} must be at most {_LONGEST} letters, digits, - and _, a letter first, but "
                f"got {shortened(name)}."
            )
        if part is None:
            return lambda each: self.register(name, each)
        if (meaning := self._meaning(name)) is not None:
            raise UsageError(f"'{name}' is {meaning} already: choose another name.")
        if (unlike := self._unlike(part)) is not None:
            raise UsageError(f"The {self.kind} '{name}' {unlike}.")
        self.forget(name)
        self._here[name] = part
        return part

    def _meaning(self, name: str) -> str | None:
        """What a name means already where one of this kind would be written; None if nothing."""
        if name in self._builtin or name in self._others:
            return f"a {self.kind}"
        if self._beside and (name == BATCH_NORM or not isinstance(read_value(name), str)):
            return "a word with a meaning in names"
        for registry in self._beside:
            if name in registry.names():
                return f"a {registry.kind}"
            # Adapters are written among the arguments, which would hide them.
            for each in registry._builtin if self is ADAPTERS else ():
                if name in options(registry.get(each)):
                    return f"an argument of {each}"
        return None

    def forget(self, name: str) -> None:
        """Take back a `register`."""
        self._here = {each: part for each, part in self._here.items() if each != name}

    def modules(self) -> list[str]:
        """The modules of the plugin's own parts, by name of the part."""
        return [self._builtin[name].partition(":")[0] for name in sorted(self._builtin)]

    def get(self, name: str) -> Any:
        """The part with this name.

        Raises:
            UnknownNameError: If nothing has that name; the message suggests the nearest.
            PartError: If another package's part cannot be imported, or is no part of this kind.
        """
        if not isinstance(name, str):
            raise UnknownNameError(self.kind, name, self.names())
        if name in self._builtin:
            return resolve_name(self._builtin[name])
        if name in self._here:
            return self._here[name]
        if name not in self._others:
            raise UnknownNameError(self.kind, name, self.names())
        part = self._load(self._others[name])
        if isinstance(part, type):
            self._known.setdefault(part, name)
        return part

    def _load(self, entry: EntryPoint) -> Any:
        """Another package's part; whatever importing it does, an exit included, becomes one sentence."""
        package = _distribution(entry)
        try:
            part = entry.load()
        except (Exception, SystemExit) as error:
            reason = f"{type(error).__name__}: {error}".rstrip(": ")
            raise PartError(self.kind, entry.name, package, f"cannot be imported ({reason})") from error
        if (unlike := self._unlike(part)) is not None:
            raise PartError(self.kind, entry.name, package, unlike)
        _used.add(package)
        return part

    def _unlike(self, part: Any) -> str | None:
        """Why something is no part of this kind; None if it is one."""
        base = resolve_name(self._base)
        if isinstance(part, base) if self._instances else isinstance(part, type) and issubclass(part, base):
            return self._senseless_sizes(part) if isinstance(part, type) else _lacking(part, base)
        wanted = f"{'an instance' if self._instances else 'a subclass'} of {base.__name__}"
        found = f"the class {part.__name__}" if isinstance(part, type) else f"an object of type {type(part).__name__}"
        return f"must be {wanted}, but is {found}"

    def _senseless_sizes(self, part: Any) -> str | None:
        """What is wrong with the sizes that a part asks for, such as a forgotten comma; None if nothing."""
        if not self._beside or (isinstance(part.sizes, (tuple, list)) and {*part.sizes} <= {"dim", "backbone"}):
            return None
        return f"must have sizes = ('dim',), ('backbone',) or both, but has {part.sizes!r}"

    def loadable(self) -> tuple[dict[str, Any], list[PartError]]:
        """All parts by name, and for each that fails, why."""
        found, faults = {}, []
        for name in self.names():
            try:
                found[name] = self.get(name)
            except PartError as error:
                faults.append(error)
        return found, faults

    def name_of(self, part: object) -> str:
        """The name under which a part's class is registered, the latest of several, or else the class's own.

        Example:
            >>> HEADS.name_of(HEADS.get("rr")())
            'rr'
        """
        kind = type(part)
        for name, place in self._builtin.items():
            if place.endswith(f":{kind.__name__}") and resolve_name(place) is kind:
                return name
        for name, each in reversed(self._here.items()):
            if each is kind:
                return name
        if kind not in self._known:
            # Of the parts that the class's own package registers; to compare with others' is to import them.
            package = _package(kind.__module__)
            mine = [name for name, each in self._others.items() if _package(each.value) == package]
            self._known[kind] = next((name for name in mine if self._is(name, kind)), kind.__name__)
        return self._known[kind]

    def _is(self, name: str, kind: type) -> bool:
        try:
            return self.get(name) is kind
        except PartError:
            return False


def fault_of_package(error: BaseException) -> FSLSTMError | None:
    """An exception as a sentence that names the package that raised it, or else those whose parts are in use."""
    entries = [each for registry in _ALL for each in registry._others.values()]
    packages = {_package(each.value): _distribution(each) for each in entries}
    for frame, line in reversed(list(walk_tb(error.__traceback__))):
        module = frame.f_globals.get("__name__", "")
        if (name := packages.get(_package(module))) is not None:
            return FSLSTMError(
                f"The package {name} failed in {module}.{frame.f_code.co_name}, line {line} "
                f"({type(error).__name__}: {error}): update or uninstall it, or tell its authors."
            )
    if not _used or isinstance(error, OSError):
        return None
    return FSLSTMError(
        f"With parts of {', '.join(sorted(_used))} this failed ({type(error).__name__}: {error}): try "
        "`fslstm_plugin.check_head` or `check_method` on them."
    )


def _lacking(part: object, base: type) -> str | None:
    """Which attributes an instance lacks of those that its base only declares; None if none."""
    lacking = [name for name in base.__annotations__ if not hasattr(part, name)]
    return f"must have the attributes {', '.join(lacking)}" if lacking else None


def _distribution(entry: EntryPoint) -> str:
    return (entry.dist.name if entry.dist else None) or entry.value


def _package(module: str) -> str:
    """The first word of a module's name, or of an entry point's value."""
    return re.split("[.:]", module)[0]


def _registered(group: str) -> EntryPoints | list[EntryPoint]:
    """Entry points of the installed packages, but for those whose file of them is damaged."""
    try:
        return entry_points(group=group)
    except Exception:  # of one damaged file, which hides those of every other package
        return [each for distribution in distributions() for each in _readable(distribution) if each.group == group]


def _readable(distribution: Distribution) -> EntryPoints | tuple[()]:
    try:
        return distribution.entry_points
    except Exception:  # each damage raises what it happens to
        return ()


HEADS = Registry(
    "head",
    "fslstm_plugin.heads",
    "fslstm_plugin.heads:Head",
    {
        "nn": "fslstm_plugin.heads.prototype:PrototypeClassifier",
        "rr": "fslstm_plugin.heads.ridge:RidgeClassifier",
        "svm": "fslstm_plugin.heads.svm:SVMClassifier",
        "lssvm": "fslstm_plugin.heads.lssvm:LSSVMClassifier",
    },
)

ADAPTERS = Registry(
    "feature adapter",
    "fslstm_plugin.adapters",
    "fslstm_plugin.adapters:FeatureAdapter",
    {
        "bpa": "fslstm_plugin.adapters.bpa:BalancedAffinities",
        "center": "fslstm_plugin.adapters.center:Center",
        "iam": "fslstm_plugin.adapters.iam:InverseAttentionModule",
        "normalize": "fslstm_plugin.adapters.normalize:Normalize",
        "power": "fslstm_plugin.adapters.power:Power",
        "stretch": "fslstm_plugin.adapters.stretch:Stretch",
    },
)

TRANSDUCTION = Registry(
    "transductive module",
    "fslstm_plugin.transduction",
    "fslstm_plugin.transduction:TransductiveModule",
    {
        "psm": "fslstm_plugin.transduction.psm:PseudoSupportModule",
        "can": "fslstm_plugin.transduction.can:CandidateSelection",
    },
)

METHODS = Registry(
    "method",
    "fslstm_plugin.methods",
    "fslstm_plugin.methods.base:Method",
    {
        "alpha-tim": "fslstm_plugin.methods.alpha_tim:AlphaTIM",
        "bd-cspn": "fslstm_plugin.methods.bd_cspn:BDCSPN",
        "dpgn": "fslstm_plugin.methods.dpgn:DPGN",
        "feat": "fslstm_plugin.methods.feat:FEAT",
        "ilpc": "fslstm_plugin.methods.ilpc:ILPC",
        "laplacian-shot": "fslstm_plugin.methods.laplacian_shot:LaplacianShot",
        "paddle": "fslstm_plugin.methods.paddle:PADDLE",
        "proto-lp": "fslstm_plugin.methods.proto_lp:ProtoLP",
        "pt-map": "fslstm_plugin.methods.pt_map:PTMAP",
        "relation-net": "fslstm_plugin.methods.relation_net:RelationNet",
        "reptile": "fslstm_plugin.methods.reptile:Reptile",
        "sib": "fslstm_plugin.methods.sib:SIB",
        "simpleshot": "fslstm_plugin.methods.simpleshot:SimpleShot",
        "team": "fslstm_plugin.methods.team:TEAM",
        "tim": "fslstm_plugin.methods.tim:TIM",
        "tpn": "fslstm_plugin.methods.tpn:TPN",
    },
)

_WRITTEN = (HEADS, ADAPTERS, TRANSDUCTION, METHODS)
for _each in _WRITTEN:
    _each._beside = [other for other in _WRITTEN if other is not _each]

BACKBONES = Registry(
    "backbone",
    "fslstm_plugin.backbones",
    "torch.nn:Module",
    {
        "conv4": "fslstm_plugin.backbones.conv4:Conv4",
        "resnet12": "fslstm_plugin.backbones.resnet12:ResNet12",
    },
)

DATASETS = Registry(
    "data set",
    "fslstm_plugin.datasets",
    "fslstm_plugin.data.base:Dataset",
    {
        "cifar-fs": "fslstm_plugin.data.sets.cifarfs:CIFAR_FS",
        "cifar-fs-other": "fslstm_plugin.data.sets.cifarfs:CIFAR_FS_OTHER",
        "mini": "fslstm_plugin.data.sets.mini:MINI",
        "mini-other": "fslstm_plugin.data.sets.mini:MINI_OTHER",
        "glyphs": "fslstm_plugin.data.sets.glyphs:GLYPHS",
        "glyphs-84": "fslstm_plugin.data.sets.glyphs:GLYPHS_84",
        "fc100": "fslstm_plugin.data.sets.l2l_benchmarks:FC100",
        "fc100-other": "fslstm_plugin.data.sets.l2l_benchmarks:FC100_OTHER",
        "tiered": "fslstm_plugin.data.sets.l2l_benchmarks:TIERED",
        "tiered-other": "fslstm_plugin.data.sets.l2l_benchmarks:TIERED_OTHER",
    },
    instances=True,
)

_ALL = (HEADS, ADAPTERS, TRANSDUCTION, METHODS, BACKBONES, DATASETS)
