"""CIFAR-FS from both archives: identical arrays, found by learn2learn, faults named."""

from __future__ import annotations

import io
import pickle
import shutil
import tarfile
import zipfile
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
from PIL import Image

from fslstm_plugin.data.base import SPLITS
from fslstm_plugin.data.sets.cifarfs import CIFAR_FS, CIFARFS
from fslstm_plugin.errors import DataError

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "cifar100.zip"
NAMES = sorted(name for split in SPLITS for name in CIFAR_FS.split_classes(split))


class SmallCIFARFS(CIFARFS):
    """All 100 classes, two images each."""

    images_per_class = 2


SMALL = SmallCIFARFS()


def image(label: int, number: int) -> np.ndarray:
    return np.random.default_rng([label, number]).integers(0, 256, (32, 32, 3), dtype=np.uint8)


def file_name(label: int, number: int) -> str:
    return f"{'ab'[(label + number) % 2]}_s_{number:06}.png"  # half of the classes in the other order


def png(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, "png")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def zip_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As learn2learn's cifar100.zip."""
    path = tmp_path_factory.mktemp("zip") / "cifar100.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for label, name in enumerate(NAMES):
            for number in range(2):
                content = png(image(label, number))
                archive.writestr(f"cifar100/data/{name}/{file_name(label, number)}", content)
        for split in SPLITS:
            archive.writestr(f"cifar100/splits/bertinetto/{split}.txt", "\n".join(CIFAR_FS.split_classes(split)))
    return path


def original_files() -> dict[str, dict[str, object]]:
    """The three pickles of cifar-100-python; the images of a class are spread over train and test."""
    files: dict[str, dict[str, object]] = {"meta": {"fine_label_names": NAMES}}
    for number, part in enumerate(("test", "train")):
        rows = [image(label, number).transpose(2, 0, 1).reshape(-1) for label in range(100)]
        files[part] = {
            "data": np.stack(rows),
            "fine_labels": list(range(100)),
            "filenames": [file_name(label, number) for label in range(100)],
        }
    return files


def write_tar(path: Path, files: dict[str, dict[str, object]]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            raw = pickle.dumps(content, protocol=2)
            info = tarfile.TarInfo(f"cifar-100-python/{name}")
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))
    return path


def assert_nothing_half_done(root: Path) -> None:
    assert not (root / "cifarfs").exists()
    assert not (root / "fslstm" / "cifar-fs").exists()
    assert list(root.rglob("*.partial")) == []


def test_the_split_is_bertinettos() -> None:
    assert [len(CIFAR_FS.split_classes(split)) for split in SPLITS] == [64, 16, 20]
    assert len(NAMES) == len(set(NAMES)) == 100


def test_both_archives_give_the_same_arrays(tmp_path: Path, zip_file: Path) -> None:
    SMALL.prepare(tmp_path / "a", zip_file)
    SMALL.prepare(tmp_path / "b", write_tar(tmp_path / "cifar-100-python.tar.gz", original_files()))
    for split in SPLITS:
        first, second = SMALL.load(tmp_path / "a", split), SMALL.load(tmp_path / "b", split)
        assert first.class_names == second.class_names == tuple(CIFAR_FS.split_classes(split))
        np.testing.assert_array_equal(first.images, second.images)
        np.testing.assert_array_equal(first.labels, second.labels)
    label = NAMES.index("apple")  # the first class of train; its images are ordered by file name
    by_name = sorted(range(2), key=lambda number: file_name(label, number))
    expected = np.stack([image(label, number) for number in by_name])
    np.testing.assert_array_equal(SMALL.load(tmp_path / "a", "train").images[:2], expected)
    assert list(tmp_path.rglob("*.partial")) == []


def test_learn2learn_finds_the_images(tmp_path: Path, zip_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from learn2learn.vision.datasets import CIFARFS as Theirs

    def download(self: object) -> None:
        raise AssertionError("learn2learn downloads")

    monkeypatch.setattr(Theirs, "_download", download)
    SMALL.prepare(tmp_path, zip_file)
    for mode, split in (("train", "train"), ("validation", "val"), ("test", "test")):
        theirs, ours = Theirs(str(tmp_path), mode=mode, download=True), SMALL.load(tmp_path, split)
        assert tuple(theirs.classes) == ours.class_names
        assert theirs.targets == ours.labels.tolist()
        np.testing.assert_array_equal(np.asarray(theirs[3][0]), ours.images[3])


def test_learn2learns_own_folder_is_a_source(tmp_path: Path, zip_file: Path) -> None:
    with zipfile.ZipFile(zip_file) as archive:
        archive.extractall(tmp_path / "cifarfs")
    SMALL.prepare(tmp_path)
    assert len(SMALL.load(tmp_path, "test").images) == 40


def interrupt(root: Path) -> Path:
    """What an interrupted extraction leaves: half of a class, and no lists of the splits."""
    folder = root / "cifarfs" / "cifar100"
    (folder / "data" / "bear").mkdir(parents=True)
    (folder / "data" / "bear" / file_name(NAMES.index("bear"), 0)).write_bytes(png(image(99, 9)))
    return folder


def test_an_incomplete_folder_is_named_with_what_to_do(tmp_path: Path) -> None:
    folder = interrupt(tmp_path)
    with pytest.raises(DataError) as failure:
        SMALL.prepare(tmp_path)
    message = str(failure.value)
    assert message.startswith(f"{folder} is incomplete (Class 'apple' (train) of CIFAR-FS has 0 images, expected 2)")
    assert "remove it to download CIFAR-FS anew" in message
    assert f"`fslstm data prepare cifar-fs --archive cifar100.zip --data-root {tmp_path}`" in message
    assert [path.name for path in folder.parent.iterdir()] == ["cifar100"]


@pytest.mark.parametrize("content", [None, b"apple\n", b"\xff\xfe"])
def test_a_folder_without_whole_split_lists_is_incomplete(
    tmp_path: Path, zip_file: Path, content: bytes | None
) -> None:
    with zipfile.ZipFile(zip_file) as archive:
        archive.extractall(tmp_path / "cifarfs")
    listed = tmp_path / "cifarfs" / "cifar100" / "splits" / "bertinetto" / "test.txt"
    listed.unlink()
    if content:
        listed.write_bytes(content)
    with pytest.raises(DataError, match=r"cifarfs/cifar100 is incomplete \("):
        SMALL.prepare(tmp_path)


def test_an_archive_replaces_an_incomplete_folder(tmp_path: Path, zip_file: Path) -> None:
    interrupt(tmp_path / "a")
    SMALL.prepare(tmp_path / "a", zip_file)
    SMALL.prepare(tmp_path / "b", zip_file)
    for split in SPLITS:
        repaired, fresh = (SMALL.load(tmp_path / root, split).images for root in "ab")
        np.testing.assert_array_equal(repaired, fresh)


def test_an_archive_goes_before_a_complete_folder(tmp_path: Path, zip_file: Path) -> None:
    with zipfile.ZipFile(zip_file) as archive:
        archive.extractall(tmp_path / "cifarfs")
    label = NAMES.index("apple")
    first = tmp_path / "cifarfs" / "cifar100" / "data" / "apple" / min(file_name(label, 0), file_name(label, 1))
    before = first.read_bytes()
    Image.new("RGB", (32, 32)).save(first)
    SMALL.prepare(tmp_path, zip_file)
    assert SMALL.load(tmp_path, "train").images[0].any()
    assert first.read_bytes() == before


def test_a_bad_archive_leaves_the_folder_as_it_was(tmp_path: Path, zip_file: Path) -> None:
    with zipfile.ZipFile(zip_file) as archive:
        archive.extractall(tmp_path / "cifarfs")
    (tmp_path / "bad.zip").write_bytes(b"nothing")
    with pytest.raises(DataError, match="neither a zip nor a tar"):
        SMALL.prepare(tmp_path, tmp_path / "bad.zip")
    SMALL.prepare(tmp_path)
    assert SMALL.is_prepared(tmp_path)


def copied(processed: Path, images: Path) -> None:
    """learn2learn's copy of the images."""
    for split in SPLITS:
        for name in CIFAR_FS.split_classes(split):
            shutil.copytree(images / name, processed / split / name)


@pytest.mark.parametrize("fault", ["half a class", "no class", "another class", "a link to nothing", "empty"])
def test_a_half_made_copy_of_learn2learns_is_made_anew(tmp_path: Path, zip_file: Path, fault: str) -> None:
    with zipfile.ZipFile(zip_file) as archive:
        archive.extractall(tmp_path / "cifarfs")
    processed = tmp_path / "cifarfs" / "processed"
    copied(processed, tmp_path / "cifarfs" / "cifar100" / "data")
    whale = processed / "test" / "whale"
    if fault == "half a class":
        next(whale.glob("*.png")).unlink()
    elif fault == "another class":
        whale.with_name("unicorn").mkdir()
    elif fault == "empty":
        shutil.rmtree(processed)
        processed.mkdir()
    else:
        shutil.rmtree(whale)
        if fault == "a link to nothing":
            whale.symlink_to("nowhere")
    messages: list[str] = []
    SMALL.prepare(tmp_path, report=messages.append)
    assert any(message.startswith(f"{processed}, learn2learn's copy") for message in messages)
    for split in SPLITS:
        assert sorted(path.name for path in (processed / split).iterdir()) == CIFAR_FS.split_classes(split)
        assert len(list((processed / split).glob("*/*.png"))) == 2 * len(CIFAR_FS.split_classes(split))


def test_a_whole_copy_of_learn2learns_stays(tmp_path: Path, zip_file: Path) -> None:
    with zipfile.ZipFile(zip_file) as archive:
        archive.extractall(tmp_path / "cifarfs")
    processed = tmp_path / "cifarfs" / "processed"
    copied(processed, tmp_path / "cifarfs" / "cifar100" / "data")
    (processed / "test" / ".DS_Store").write_text("a file, no class")
    SMALL.prepare(tmp_path)
    assert not (processed / "test" / "whale").is_symlink()


def test_an_incomplete_class_is_named(tmp_path: Path, zip_file: Path) -> None:
    with pytest.raises(DataError, match=r"Class 'apple' \(train\) of CIFAR-FS has 2 images, expected 600"):
        CIFAR_FS.prepare(tmp_path, zip_file)
    assert_nothing_half_done(tmp_path)


def test_a_broken_image_is_named(tmp_path: Path, zip_file: Path) -> None:
    with zipfile.ZipFile(zip_file) as archive:
        archive.extractall(tmp_path / "cifarfs")
    broken = tmp_path / "cifarfs" / "cifar100" / "data" / "whale" / file_name(NAMES.index("whale"), 0)
    broken.write_bytes(broken.read_bytes()[:1000])
    with pytest.raises(DataError, match=f"The image {broken} is damaged, or not an image"):
        SMALL.prepare(tmp_path)
    assert not SMALL.is_prepared(tmp_path)
    Image.new("RGB", (31, 32)).save(broken)
    with pytest.raises(DataError, match=f"{broken}.*expected uint8"):
        SMALL.prepare(tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"<!DOCTYPE html>", "is a web page"), (b"nothing", "neither a zip nor a tar"), (None, "truncated")],
)
def test_a_wrong_archive_is_named(tmp_path: Path, zip_file: Path, content: bytes | None, words: str) -> None:
    bad = tmp_path / "bad.zip"
    bad.write_bytes(content or zip_file.read_bytes()[:10_000])
    with pytest.raises(DataError, match=rf"bad\.zip is .*{words}|bad\.zip {words}"):
        SMALL.prepare(tmp_path / "root", bad)
    assert_nothing_half_done(tmp_path / "root")


def test_another_zip_is_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("omniglot/a.png", b"x")
    with pytest.raises(DataError, match="it is not CIFAR-100"):
        SMALL.prepare(tmp_path / "root", tmp_path / "other.zip")
    assert_nothing_half_done(tmp_path / "root")


@pytest.mark.parametrize(
    ("part", "key", "value", "words"),
    [
        ("train", "filenames", ["../../out.png"] * 100, "expected a plain file name"),
        ("train", "fine_labels", list(range(99)), "100 images, 99 labels"),
        ("train", "fine_labels", list(range(1, 101)), "labels"),
        ("test", "data", np.zeros((100, 3071), np.uint8), "uint8 rows of 3072"),
        ("meta", "fine_label_names", ["../x"] * 100, "class names"),
    ],
)
def test_a_tampered_original_archive_is_named(tmp_path: Path, part: str, key: str, value: object, words: str) -> None:
    files = original_files()
    files[part][key] = value
    with pytest.raises(DataError, match=words):
        SMALL.prepare(tmp_path / "root", write_tar(tmp_path / "a.tar.gz", files))
    assert_nothing_half_done(tmp_path / "root")
    assert not list(tmp_path.rglob("out.png"))


def test_what_is_missing_can_be_downloaded_or_taken_from_an_archive(tmp_path: Path) -> None:
    with pytest.raises(DataError) as failure:
        SMALL.load(tmp_path / "my data", "train")
    command = f"fslstm data prepare cifar-fs{{}} --data-root '{tmp_path}/my data'"
    assert f"`{command.format('')}`, which downloads it" in str(failure.value)
    assert f"`{command.format(' --archive cifar100.zip')}`" in str(failure.value)


def test_without_network_one_sentence_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*args: object) -> None:
        raise URLError("no route to host")

    monkeypatch.setattr("torchvision.datasets.utils.download_url", offline)
    with pytest.raises(DataError) as failure:
        SMALL.prepare(tmp_path)
    message = str(failure.value)
    assert "could not be downloaded" in message
    assert "which downloads it" not in message
    assert f"`fslstm data prepare cifar-fs --archive cifar100.zip --data-root {tmp_path}`" in message
    assert "\n" not in message
    assert_nothing_half_done(tmp_path)


def test_a_download_goes_the_same_road(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = write_tar(tmp_path / "ready.tar.gz", original_files())

    def download(url: str, folder: str, name: str, md5: str) -> None:
        assert (name, len(md5)) == ("cifar-100-python.tar.gz", 32)
        shutil.copy(ready, Path(folder, name))

    monkeypatch.setattr("torchvision.datasets.utils.download_url", download)
    SMALL.prepare(tmp_path / "root")
    assert SMALL.is_prepared(tmp_path / "root")
    assert list((tmp_path / "root").rglob("*.tar.gz")) == []


@pytest.mark.skipif(not REAL.exists(), reason="needs the real cifar100.zip in ../shared/data, not in the repository")
def test_the_real_archive_has_the_split_of_the_plugin() -> None:
    with zipfile.ZipFile(REAL) as archive:
        for split in SPLITS:
            lines = archive.read(f"cifar100/splits/bertinetto/{split}.txt").decode().split()
            assert lines == CIFAR_FS.split_classes(split)
        folders = {name.split("/")[2] for name in archive.namelist() if name.endswith(".png")}
    assert folders == set(NAMES)
