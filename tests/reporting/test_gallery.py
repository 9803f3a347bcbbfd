"""The gallery: what it lists, and that its program does what its buttons say, in a browser."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import painted
import pytest
from PIL import Image

from fslstm_plugin import FewShotClassifier
from fslstm_plugin.pictures.predictions import NONE, Prediction
from fslstm_plugin.reporting.gallery import gallery

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
HOSTILE = ("</script><script>alert(1)</script>", "=1+1", 'a "quote", and', "<img src=x onerror=alert(1)>")


def prediction(path: Path, label: str, probability: float, **more: object) -> Prediction:
    found = Prediction(str(path), label, "owl" if label == NONE else label, probability, 0.25, None, "")
    return found._replace(**more)


def data_of(page: str) -> dict:
    return json.loads(re.search('<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def test_all_pictures_are_listed_least_certain_first(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.png" for number in range(3)] + [tmp_path / "3.tif"]
    for file in files:
        Image.new("RGB", (300, 200), "red").save(file)
    near = str(tmp_path / "near.png")
    given = [
        prediction(files[0], "owl", 0.9, nearest=near),
        prediction(files[1], NONE, 0.3, labels=("owl", "tit")),
        prediction(files[2], "tit", 0.8, sure=True),
        prediction(files[3], "tit", 0.95),
    ]
    page = gallery(given, ["owl", "tit"], "Birds", ["Said."], tmp_path / "g.html", {near: "wren"}, "m", most=1)
    data = data_of(page)
    assert [row["name"] for row in data["rows"]] == ["1.png", "2.png", "0.png", "3.tif"]
    assert [row["image"] is not None for row in data["rows"]] == [True, False, False, True]  # no browser shows TIFF
    assert data["rows"][0]["others"] == "or tit"
    assert (
        data["rows"][0]["why"]
        == f"{NONE}: less similar to every class than 75 % of the labelled pictures are to their own"
    )
    assert (data["rows"][2]["near"], data["near"]) == (
        0,
        [{"image": None, "name": f"{tmp_path.name}/near.png", "label": "wren"}],
    )
    assert data["classes"] == ["owl", "tit"]
    assert '<option value="unsure">' in page
    assert "<p>Said.</p>" in page


def test_the_page_runs_its_own_program_alone_and_asks_no_network() -> None:
    page = gallery([prediction(Path("/a.png"), "owl", 0.5)], ["owl"], "Birds")
    script = re.findall("<script>(.*?)</script>", page, re.S)
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert len(script) == 1
    assert (
        f"default-src 'none'; img-src data: file: blob:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
        in page
    )
    assert not re.search("https?:", page)


def dumped(page: Path, steps: str, folder: Path) -> str:
    """The page as it is in a browser after some steps, of which the last writes what is asked for into its title."""
    text = page.read_text(encoding="utf-8")
    driven = page.with_name("driven.html")
    text = re.sub("script-src '[^']*'", "script-src 'unsafe-inline'", text)
    driven.write_text(text.replace("</body>", f"<script>{steps}</script></body>"), encoding="utf-8")
    done = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={folder}", "--virtual-time-budget=2000",
            "--dump-dom", driven.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return json.loads(re.search("<title>(.*?)</title>", done.stdout, re.S)[1].replace("&lt;", "<").replace("&gt;", ">"))


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_corrections_in_a_browser_are_what_update_reads(fslstm, tmp_path: Path) -> None:
    labelled = painted.labelled(tmp_path / "labelled")
    for colour, name in zip(("blue", "green", "red"), HOSTILE, strict=False):
        (labelled / colour).rename(labelled / name.replace("/", "_"))
    model, page = tmp_path / "m.fslstm", tmp_path / "page.html"
    assert fslstm("fit", labelled, "-o", model, "--method", "nn", *painted.backbone(tmp_path)).code == 0
    new = painted.unlabelled(tmp_path / "new")
    shutil.move(new / "red-0.png", new / HOSTILE[2])
    (new / HOSTILE[2]).rename(new / 'a "quote", and#?%41.png')
    assert fslstm("predict", model, new, "--html", page, "--accept", 1).code == 0
    steps = """
    const press = key => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    const cards = () => [...document.querySelectorAll(".card")];
    controls.sort.value = "name"; select();
    cards()[0].focus();
    press(" "); press("2"); press("ArrowRight"); press("4");
    const choice = cards()[5].querySelector("select");
    choice.value = data.classes[0]; choice.dispatchEvent(new Event("change"));
    press(" "); press("ArrowLeft"); press(" ");
    cards()[0].querySelector(".new").click();
    const opened = zoom.open && zoom.querySelector("img").src;
    controls.state.value = "done"; select();
    const done = shown.length;
    controls.state.value = "all"; controls.text.value = "and#"; select();
    document.title = JSON.stringify([table(), done, shown.length, opened, document.getElementById("save").textContent]);
    """
    text, done, quoted, opened, button = dumped(page, steps, tmp_path / "profile")
    assert opened.startswith("file://")
    assert opened.endswith("png")
    assert (done, quoted, button) == (4, 1, "Save corrections.csv (4)")
    (tmp_path / "corrections.csv").write_text(text, encoding="utf-8", newline="")
    rows = list(csv.DictReader(text.splitlines()))
    assert {row["label"] for row in rows} >= {NONE}
    assert all(Path(row["path"]).exists() for row in rows)
    result = fslstm("update", model, "--add", tmp_path / "corrections.csv")
    assert result.code == 0, result.err
    assert f'1 picture of "{NONE}" left out' in result.err
    classifier = FewShotClassifier.load(model)
    kept = dict(zip(classifier.pictures_, classifier.classes_[classifier.support_labels_], strict=True))
    for row in rows:
        if row["label"] != NONE:
            assert kept[row["path"]] == row["label"].removeprefix("'")
    again = dumped(page, "document.title = JSON.stringify(Object.keys(said).length)", tmp_path / "profile")
    assert again == 4  # kept by the browser
    steps = """
    window.confirm = () => true;
    controls.sort.value = "random"; select();
    const order = shown.map(row => row.name);
    select();
    document.getElementById("others").click();
    const right = shown.filter(row => said[row.path] === row.label).length;
    document.title = JSON.stringify([order, shown.map(row => row.name), right, Object.keys(said).length]);
    """
    order, repeated, right, everything = dumped(page, steps, tmp_path / "profile")
    assert order == repeated != sorted(order)
    assert (len(order), everything) == (12, 12)
    assert right == 12 - 3  # of the four that were said before, three were corrected


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_a_corrected_label_is_not_among_the_least_certain(tmp_path: Path) -> None:
    Image.new("RGB", (9, 9)).save(tmp_path / "a.png")
    given = [
        prediction(tmp_path / "a.png", "grey", 0.3, likeliest="owl"),
        prediction(tmp_path / "a.png", "owl", 0.9),
        prediction(tmp_path / "a.png", NONE, 0.4),
    ]
    page = tmp_path / "page.html"
    page.write_text(gallery(given, ["owl"], "Birds", file=page, most=2))
    assert data_of(page.read_text())["rows"][2]["label"] == "grey"
    steps = """
    const labels = () => shown.map(row => row.label);
    const least = labels(), chosen = document.querySelector(".card:last-child select").value;
    controls.least.value = 95; select();
    document.title = JSON.stringify([least, chosen, labels()]);
    """
    least, chosen, below = dumped(page, steps, tmp_path / "profile")
    assert (least, chosen, below) == ([NONE, "owl", "grey"], "grey", [NONE, "owl"])


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_what_a_browser_does_not_show_is_enlarged_from_the_page(tmp_path: Path) -> None:
    Image.new("RGB", (300, 200), "red").save(tmp_path / "a.tif")
    page = tmp_path / "page.html"
    page.write_text(gallery([prediction(tmp_path / "a.tif", "owl", 0.9)], ["owl"], "Birds", file=page))
    steps = """
    enlarge(data.rows[0]);
    setTimeout(() => {
      const said = zoom.querySelector("p").textContent;
      document.title = JSON.stringify([zoom.querySelector("img").src.slice(0, 16), said]);
    }, 500);
    """
    shown, said = dumped(page, steps, tmp_path / "profile")
    assert shown == "data:image/jpeg;"
    assert said == "a.tif is not there, or of a kind that this browser does not show."
