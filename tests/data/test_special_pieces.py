"""Special pieces of a file made elsewhere get the ids 0 to 3, and the pieces there get theirs."""

import pytest

from regard.data.special_pieces import SPECIAL, adopt
from regard.errors import DataError


def content(*pieces, **more):
    return {"model": {"type": "WordLevel", "vocab": {piece: i for i, piece in enumerate(pieces)}}, **more}


def test_they_trade_places():
    given = content("a", "b", "[PAD]", "c", "[UNK]", "[CLS]", "[SEP]", post_processor={"type": "BertProcessing"})
    moved = adopt(given, "here")
    ids = moved["model"]["vocab"]
    assert [ids[name] for name in ("[PAD]", "[CLS]", "[SEP]", "[UNK]")] == [0, 1, 2, 3]
    assert sorted(ids.values()) == list(range(7))
    assert moved["post_processor"] is None
    assert given["model"]["vocab"]["a"] == 0  # the given content is not modified


def test_those_in_their_places_stay():
    given = content(*SPECIAL, "a")
    assert adopt(given, "here") is given


def test_one_that_is_missing_is_named():
    with pytest.raises(DataError, match=r"here: no <s> in its vocabulary \(nor <bos> or \[BOS\] or \[CLS\]\)"):
        adopt(content("<pad>", "</s>", "<unk>"), "here")
