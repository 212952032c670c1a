"""Token numbers become the tensors that models read."""

from regard.data import END, PAD
from regard.decoding.scoring import documents_of, source_of, tokens_of


def test_rows_become_sentences():
    rows = [[5, 6, END, 7, END], [], [8, END], [9, 9, 9, END, 4, END, 4, 5, END]]
    found = documents_of(rows)
    assert found.sentences.tolist() == [2, 0, 1, 3]
    assert found.words.lengths.tolist() == [2, 1, 1, 3, 1, 2]
    assert found.words.ids.tolist() == [
        [5, 6, PAD],
        [7, PAD, PAD],
        [8, PAD, PAD],
        [9, 9, 9],
        [4, PAD, PAD],
        [4, 5, PAD],
    ]
    flat = source_of(rows, "text")
    assert flat.lengths.tolist() == [5, 0, 2, 9]
    assert flat.ids[0].tolist() == [5, 6, END, 7, END, PAD, PAD, PAD, PAD]
    nothing = documents_of([])
    assert (nothing.words.ids.shape, nothing.sentences.shape) == ((0, 1), (0,))


def test_padded_rows():
    tokens = tokens_of([[4, 5, 6], [7]])
    assert tokens.ids.tolist() == [[4, 5, 6], [7, PAD, PAD]]
    assert tokens.lengths.tolist() == [3, 1]
