"""CTranslate2 behind a minimal server gives its library's answers; the tests' own packages do not include it."""

import json
import urllib.request

import pytest

from regard.run import load
from regard_bench import serving

TINY = {"size": 8, "heads": 2, "layers": 1, "hidden": 8}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_request_is_answered_with_texts(tmp_path):
    pytest.importorskip("ctranslate2")
    folder, words = serving.write_run(tmp_path / "run", TINY, 200), serving.Words(200)
    body = {"texts": [words.sentence(5) for _ in range(6)], "beam": 1, "shortest": 4, "longest": 4}
    with serving.start(["regard_bench.peer_server", str(folder), "cpu"]) as address:
        request = urllib.request.Request(address + serving.PLACE, json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=60) as response:
            texts = [each["text"] for each in json.load(response)["results"]]
    assert texts == load(folder).translate(body["texts"], beam=1, shortest=4, longest=4)  # greedy: END changes nothing
