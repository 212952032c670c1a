"""Small galleries of scenes and photographs."""

import tarfile

from PIL import Image

from regard_studies.corpora import scenes

SCENES = scenes(40, 6, side=32, shapes=2)


def photographs(folder, count=6):
    """Write a corpus of plain pictures in the form of Flickr8k."""
    home = folder / "flickr8k"
    (home / "made").mkdir(parents=True)
    names = [f"{i}.jpg" for i in range(count)]
    with tarfile.open(home / "images.tar", "w") as archive:
        for i, name in enumerate(names):
            Image.new("RGB", (120, 96), (40 * i, 90, 200 - 30 * i)).save(home / "made" / name)
            archive.add(home / "made" / name, name)
    lines = [f"{name}#{n}\tA picture number {i} , told {n} times .\n" for i, name in enumerate(names) for n in range(2)]
    (home / "Flickr8k.token.txt.gz").write_text("".join(lines))
    for which, part in (("train", names[:-2]), ("dev", names[-2:-1]), ("test", names[-1:])):
        (home / f"Flickr_8k.{which}Images.txt").write_text("\n".join(part))
    return folder
