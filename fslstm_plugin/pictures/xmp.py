"""XMP sidecars: a label as a keyword beside its picture, where programs for photographs look for it.

Source: Adobe, "XMP specification part 1", sections on the serialisation and the Dublin Core namespace; the name
``PICTURE.jpg.xmp`` is darktable's and digiKam's.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from ..errors import StorageError
from ..storage.files import write_text

_LONGEST = 2**20  # Bytes of a sidecar; far more than labels take.
_KEYWORDS = re.compile(r"<rdf:Bag>(.*)</rdf:Bag>", re.DOTALL)
_SIDECAR = """<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/" x:xmptk="fslstm {digest}">
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
  <rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/">
   <dc:subject><rdf:Bag>{keywords}</rdf:Bag></dc:subject>
  </rdf:Description>
 </rdf:RDF>
</x:xmpmeta>
<?xpacket end="w"?>
"""


class Sidecars(NamedTuple):
    """How many sidecars were written, and left as others made or changed them; why each of the rest was not."""

    written: int
    left: int
    failed: list[str]


def write_sidecars(labels: Mapping[Path, Collection[str]]) -> Sidecars:
    """Write the keywords of each picture beside it; of one without any, a sidecar from before is removed.

    One that somebody else made or changed is left as it is; one that cannot be written stops no other.

    Example:
        >>> import tempfile
        >>> picture = Path(tempfile.mkdtemp()) / "1.jpg"
        >>> write_sidecars({picture: ["owl & wren"]})
        Sidecars(written=1, left=0, failed=[])
        >>> "<rdf:li>owl &amp; wren</rdf:li>" in picture.with_name("1.jpg.xmp").read_text(encoding="utf-8")
        True
    """
    written = left = 0
    failed = []
    for picture, keywords in labels.items():
        sidecar = picture.with_name(f"{picture.name}.xmp")
        is_there = os.path.lexists(sidecar)
        if is_there and not _is_ours(sidecar):
            left += 1
            continue
        try:
            if keywords:
                listed = "".join(f"<rdf:li>{escape(each)}</rdf:li>" for each in keywords)
                write_text(sidecar, _content(listed), follow_links=False)
                written += 1
            elif is_there:
                sidecar.unlink()
        except StorageError as error:
            failed.append(str(error))
        except OSError as error:
            failed.append(f"Cannot remove {sidecar}: {error.strerror}.")
    return Sidecars(written, left, failed)


def _content(keywords: str) -> str:
    """The sidecar, with a digest of its keywords, by which it is known again as long as nobody changes it."""
    digest = hashlib.blake2b(keywords.encode(), digest_size=8).hexdigest()
    return _SIDECAR.format(digest=digest, keywords=keywords)


def _is_ours(sidecar: Path) -> bool:
    if sidecar.is_symlink() or not sidecar.is_file() or sidecar.stat().st_size > _LONGEST:
        return False
    try:
        text = sidecar.read_bytes().decode(errors="replace")
    except OSError:  # of another user, who lets nobody read it
        return False
    found = _KEYWORDS.search(text)
    return found is not None and text == _content(found[1])
