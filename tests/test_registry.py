"""A part of another package that fails stops only what uses it, in one sentence, through the command line."""

from __future__ import annotations

import json
import sys
from importlib.metadata import PathDistribution
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch import nn

from fslstm_plugin.adapters import Normalize
from fslstm_plugin.backbones.base import build_backbone
from fslstm_plugin.data.base import Dataset
from fslstm_plugin.errors import PartError, UnknownNameError, UsageError
from fslstm_plugin.heads import Head, PrototypeClassifier, RidgeClassifier
from fslstm_plugin.methods.simpleshot import SimpleShot
from fslstm_plugin.registry import (
    ADAPTERS,
    BACKBONES,
    DATASETS,
    HEADS,
    METHODS,
    TRANSDUCTION,
    Registry,
    fault_of_package,
)
from fslstm_plugin.transduction import PseudoSupportModule

REGISTRIES = (HEADS, ADAPTERS, TRANSDUCTION, METHODS, BACKBONES, DATASETS)
MODULES = {
    "broken_raises": 'raise ZeroDivisionError("of its own")',
    "broken_exits": "raise SystemExit(0)",
    "broken_lacks": "import a_package_that_is_not_there",
    "broken_rubbish": "from pathlib import Path as part; number = 3",
}
PLACES = {
    "raises": ("broken_raises:part", "cannot be imported (ZeroDivisionError: of its own)"),
    "exits": ("broken_exits:part", "cannot be imported (SystemExit: 0)"),
    "lacks": ("broken_lacks:part", "cannot be imported (ModuleNotFoundError: No module named"),
    "missing": ("broken_rubbish:nothing", "cannot be imported (AttributeError:"),
    "no-module": ("broken_nowhere:part", "cannot be imported (ModuleNotFoundError:"),
    "senseless": ("!!", "cannot be imported ("),
    "other-class": ("broken_rubbish:part", "must be "),
    "number": ("broken_rubbish:number", "must be "),
}


def install(site: Path, package: str, entry_points: str) -> None:
    folder = site / f"{package}-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(entry_points)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder of packages, with every kind of broken part in one of them."""
    site = tmp_path / "site"
    groups = [
        f"[{each.group}]\n" + "".join(f"{name} = {at}\n" for name, (at, _) in PLACES.items()) for each in REGISTRIES
    ]
    install(site, "broken-parts", "\n".join(groups))
    for name, content in MODULES.items():
        (site / f"{name}.py").write_text(content)
    monkeypatch.syspath_prepend(site)
    _forget()
    yield site
    _forget()
    for name in MODULES:
        sys.modules.pop(name, None)


def _forget() -> None:
    for registry in REGISTRIES:
        registry.__dict__.pop("_others", None)


@pytest.fixture
def failing(site: Path, monkeypatch: pytest.MonkeyPatch):
    """A package of heads that fail only when they are used."""
    (site / "fails_at_use.py").write_text(
        "from fslstm_plugin.heads import Head\n"
        "class Raises(Head):\n"
        "    def solve(self, kernel, targets):\n"
        "        raise ZeroDivisionError('of its own')\n"
        "class GivesNothing(Head):\n"
        "    def solve(self, kernel, targets):\n"
        "        return None\n"
    )
    heads = "raises-in-use = fails_at_use:Raises\ngives-nothing = fails_at_use:GivesNothing\n"
    install(site, "fails-at-use", f"[{HEADS.group}]\n{heads}")
    _forget()
    monkeypatch.setattr("fslstm_plugin.registry._used", set())
    yield
    sys.modules.pop("fails_at_use", None)


@pytest.fixture
def features(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "f.npz", features=rng.normal(size=(60, 8)).astype(np.float32), labels=np.repeat(range(6), 10))
    return tmp_path / "f.npz"


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for place in ("owl/1", "owl/2", "wren/1", "wren/2"):
        file = tmp_path / "pictures" / f"{place}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(file)
    return tmp_path / "pictures"


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda each: each.kind.replace(" ", "-"))
@pytest.mark.parametrize("name", PLACES)
def test_each_fault_is_a_sentence_with_package_and_name(registry, name: str, site: Path) -> None:
    with pytest.raises(PartError) as caught:
        registry.get(name)
    text = str(caught.value)
    assert text.startswith(f"The {registry.kind} '{name}' of the package broken-parts {PLACES[name][1]}")
    found, faults = registry.loadable()
    assert len(faults) == len(PLACES)
    assert set(registry.names()) - set(PLACES) == set(found)


def test_a_name_of_ours_is_found_without_importing_theirs(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (site / "broken_raises.py").write_text("RidgeClassifier = None")
    install(site, "same-name", "[fslstm_plugin.heads]\nridge-too = broken_raises:RidgeClassifier\n")
    _forget()
    assert HEADS.name_of(RidgeClassifier()) == "rr"
    own = type("RidgeClassifier", (RidgeClassifier,), {})
    assert HEADS.name_of(own()) == "RidgeClassifier"
    assert "broken_raises" not in sys.modules


def test_a_damaged_file_of_entry_points_hides_no_other_package(site: Path) -> None:
    install(site, "damaged", "[fslstm_plugin.heads]\nnonsense\n")
    _forget()
    assert set(PLACES) | {"centroid", "rr"} <= set(HEADS.names())
    assert issubclass(HEADS.get("centroid"), Head)


def test_commands_that_do_not_use_them_go_on(site: Path, features: Path, pictures: Path, fslstm) -> None:
    few = ("--features", features, "--episodes", 10, "--shots", 2, "--queries", 3)
    compared = fslstm("compare", *few)
    assert compared.code == 0, compared.err
    for name, (_, fault) in PLACES.items():
        assert f"Left out: The method '{name}' of the package broken-parts {fault}" in compared.err
    assert fslstm("eval", *few, "rr(normalize)+psm").code == 0
    fitted = fslstm("fit", pictures, "-o", pictures / "m.fslstm")
    assert fitted.code == 0, fitted.err


def test_a_list_shows_them_as_rows(site: Path, tmp_path: Path, fslstm) -> None:
    listed = fslstm("data", "list", "--json", tmp_path / "rows.json")
    assert listed.code == 0, listed.err
    rows = {row["dataset"]: row for row in json.loads((tmp_path / "rows.json").read_text())["rows"]}
    assert {"cifar-fs", "dots"} <= set(rows)
    for name, (_, fault) in PLACES.items():
        assert fault in rows[name]["state"]
        assert not rows[name]["prepared"]


@pytest.mark.parametrize("name", PLACES)
def test_a_command_that_uses_one_says_so(name: str, site: Path, features: Path, pictures: Path, fslstm) -> None:
    for arguments in (
        ("eval", "--features", features, name),
        ("eval", "--features", features, f"rr+{name}"),
        ("eval", "--features", features, f"rr({name})"),
        ("data", "prepare", name),
        ("train", "--dataset", name),
        ("train", "--dataset", "dots", "--backbone", name),
        ("fit", pictures, "--backbone", name, "--weights", features, "-o", pictures / "m.fslstm"),
    ):
        outcome = fslstm(*arguments)
        assert outcome.code == 1, (arguments, outcome.err)
        assert f"'{name}' of the package broken-parts {PLACES[name][1]}" in outcome.err, arguments
        assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raises-in-use", "The package fails-at-use failed in fails_at_use.solve, line 4 (ZeroDivisionError: of "),
        ("gives-nothing", "With parts of fails-at-use this failed (AttributeError: "),
    ],
)
def test_a_part_that_fails_in_use_is_a_sentence_with_its_package(name, said, failing, features: Path, fslstm) -> None:
    outcome = fslstm("eval", "--features", features, name, "--episodes", 10, "--shots", 2, "--queries", 3)
    assert outcome.code == 1
    assert said in outcome.err
    assert (outcome.err.count("\n"), "Traceback" in outcome.err) == (1, False)


def test_a_failure_of_ours_is_no_packages(failing) -> None:
    assert fault_of_package(ZeroDivisionError("of ours")) is None


@pytest.mark.parametrize(
    ("mine", "name", "meaning"),
    [
        (HEADS, "tim", "a method"),
        (METHODS, "lssvm", "a head"),
        (HEADS, "iam", "a feature adapter"),
        (HEADS, "centroid", "a head"),
        (ADAPTERS, "psm", "a transductive module"),
        (ADAPTERS, "ridge", "an argument of rr"),
        (ADAPTERS, "kernel", "an argument of nn"),
        (TRANSDUCTION, "normalize", "a feature adapter"),
        *((registry, name, "a word") for registry in (HEADS, ADAPTERS) for name in ("bn", "true", "none", "NaN")),
    ],
)
def test_a_name_means_one_thing(mine: Registry, name: str, meaning: str) -> None:
    """Where it is written, one would hide the other."""
    part = {HEADS: PrototypeClassifier, METHODS: SimpleShot, ADAPTERS: Normalize, TRANSDUCTION: PseudoSupportModule}
    with pytest.raises(UsageError, match=f"'{name}' is {meaning}.* already"):
        mine.register(name, part[mine])


def test_a_part_of_two_names_has_the_latest_that_is_not_forgotten() -> None:
    class Mine(PrototypeClassifier):
        pass

    names = ["Mine"]
    try:
        for name in ("g1", "g2"):
            HEADS.register(name, Mine)
            names.append(HEADS.name_of(Mine()))
    finally:
        for name in ("g2", "g1"):
            HEADS.forget(name)
            names.append(HEADS.name_of(Mine()))
    assert names == ["Mine", "g1", "g2", "g1", "Mine"]


def test_what_is_no_text_is_no_name() -> None:
    with pytest.raises(UnknownNameError, match=r"no head '\[\]'"):
        HEADS.get([])  # type: ignore[arg-type]
    HEADS.forget([])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["", "a b", "a+b", "a(b)", "2nn", "-nn", "nn-", "nächste", "nn\n", 3, None, "n" * 100_000]
)
def test_a_name_is_letters_digits_and_hyphens(name: object) -> None:
    with pytest.raises(UsageError, match="a letter first, but got .{0,40}\\.$"):
        METHODS.register(name, SimpleShot)  # type: ignore[call-overload]


def test_a_decorator_without_a_name_is_refused_where_it_stands() -> None:
    with pytest.raises(UsageError, match="a letter first, but got <class"):
        METHODS.register(SimpleShot)  # type: ignore[call-overload]


@pytest.mark.parametrize("sizes", ["dim", ("dims",), None])
def test_sizes_that_no_model_has_are_refused(sizes: object) -> None:
    part = type("Part", (SimpleShot,), {"sizes": sizes})
    with pytest.raises(UsageError, match=r"'sized' must have sizes = \('dim',\), \('backbone',\) or both, but has "):
        METHODS.register("sized", part)


def test_a_data_set_says_all_that_it_must() -> None:
    class Half(Dataset):
        name, title, images_per_class = "half", "Half", None

        def read(self, root, source, report):
            yield from ()

    with pytest.raises(UsageError, match="The data set 'half' must have the attributes image_size, classes"):
        DATASETS.register("half", Half())


def test_a_backbone_that_takes_no_image_size_is_named() -> None:
    BACKBONES.register("sizeless", type("Sizeless", (nn.Identity,), {"__init__": lambda self: None}))
    try:
        with pytest.raises(UsageError, match="The backbone 'sizeless' cannot be made with image_size=32: .*unexpected"):
            build_backbone("sizeless", 32)
    finally:
        BACKBONES.forget("sizeless")


def test_the_example_package_has_the_entry_points_that_the_tests_use(request: pytest.FixtureRequest):
    toml = pytest.importorskip("tomllib")
    folder = request.config.rootpath / "tests" / "extension"
    project = toml.loads((folder / "pyproject.toml").read_text())["project"]
    used = PathDistribution(folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info").entry_points
    named = {(group, *part) for group, parts in project["entry-points"].items() for part in parts.items()}
    assert named == {(each.group, each.name, each.value) for each in used}
