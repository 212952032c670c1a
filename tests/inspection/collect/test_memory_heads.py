"""Views of a memory's heads: where they stand is where the machine has them."""

import torch
from inspection.subjects import (
    TEXT,
    exhibit_of_subject,
    subject,
)

from regard.decoding.sources import tokens_of


def test_a_machine_moves_in_its_memory():
    """The weights of the last step are those that the machine has then, and the first of it stands where it began."""
    run, exhibit = subject("ntm"), exhibit_of_subject("ntm")
    views = {view.name: view for view in exhibit.views}
    read = [run.tokenizers.target.library.token_to_id(piece) for piece in exhibit.sides["read"].pieces]
    with torch.no_grad():
        memory = run.model.encode(tokens_of([run.tokenizers.source.encode(TEXT)]))
        reading, writing = memory.sentence["weights"][0].chunk(2)
        torch.testing.assert_close(views["heads.source.read"].weights[:, -1], reading)
        torch.testing.assert_close(views["heads.source.write"].weights[:, -1], writing)
        state = run.model.start(memory, 1, 20)
        for token in read:
            run.model.step(torch.tensor([token]), state)
    torch.testing.assert_close(views["heads.target.read"].weights[:, -1], state.row["weights"][0, :2])
    torch.testing.assert_close(views["heads.target.write"].weights[:, -1], state.row["weights"][0, 2:])
    assert exhibit.sides["source"].pieces[-1] == "</s>"
