"""What the files of an encoder say about its vectors is followed, or refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from relquery.errors import ModelError
from relquery.model.encoder.encoder import Encoder

TEXTS = ["the tower", "a bridge over the river", "Old WATER under the sky"]
Write = Callable[..., Path]


@pytest.fixture
def written(folder: Path, tmp_path: Path) -> Write:
    """Writes the files of an encoder, and more JSON files beside them."""

    def write(files: dict[str, Any], network: str = "") -> Path:
        (tmp_path / network).mkdir(exist_ok=True)
        for file in folder.iterdir():
            (tmp_path / network / file.name).write_bytes(file.read_bytes())
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(json.dumps(content))
        return tmp_path

    return write


def modules(*kinds: str, network: str = "", pooling: str = "1_Pooling") -> list[dict[str, str]]:
    """The content of a modules.json."""
    places = {"Transformer": network, "Pooling": pooling}
    prefix = "sentence_transformers.models."
    return [{"type": prefix + kind, "path": places.get(kind, f"2_{kind}")} for kind in kinds]


def states(folder: Path, text: str, longest: int = 40) -> np.ndarray[Any, Any]:
    """(tokens, dimensions), by the stock network."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(text, truncation=True, max_length=longest, return_tensors="pt")
    with torch.inference_mode():
        found = AutoModel.from_pretrained(folder).eval()(**ids).last_hidden_state[0]
        return cast("np.ndarray[Any, Any]", found.numpy())


def test_pooling_is_what_the_folder_says(written: Write) -> None:
    for place, said in (
        ("1_Pooling", {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}),
        ("1_Pooling", {"embedding_dimension": 32, "pooling_mode": "cls", "include_prompt": True}),
        ("pooled", {"pooling_mode": ["cls"]}),
    ):
        listed = modules("Transformer", "Pooling", "Normalize", pooling=place)
        folder = written({"modules.json": listed, f"{place}/config.json": said})
        assert Encoder.load(str(folder)).layout.pooling == "cls"
        assert Encoder.load(str(folder), "mean").layout.pooling == "mean"


def test_the_last_token_can_be_the_vector(written: Write) -> None:
    folder = written({"1_Pooling/config.json": {"pooling_mode_lasttoken": True}})
    expected = np.stack([states(folder, text)[-1] for text in TEXTS])
    np.testing.assert_allclose(Encoder.load(str(folder)).embed(TEXTS), expected, atol=1e-5)


def test_an_unsupported_pooling_names_a_remedy_that_works(written: Write) -> None:
    for said in ({"pooling_mode": "max"}, {"pooling_mode": ["mean", "cls"]}, {"include_prompt": 1}):
        folder = written({"1_Pooling/config.json": said})
        with pytest.raises(ModelError, match=r"asks for the pooling .*pooling='mean'"):
            Encoder.load(str(folder))
        assert Encoder.load(str(folder), "mean").layout.pooling == "mean"


def test_a_layer_behind_the_pooling_is_refused(written: Write) -> None:
    folder = written({"modules.json": modules("Transformer", "Pooling", "Dense")})
    with pytest.raises(ModelError, match="a module of the kind Dense, which is not supported"):
        Encoder.load(str(folder), "mean")


def test_a_network_in_a_folder_of_its_own_is_found(written: Write, folder: Path) -> None:
    listed = modules("Transformer", "Pooling", network="0_Transformer")
    pooling = {"pooling_mode_mean_tokens": True}
    nested = written(
        {"modules.json": listed, "1_Pooling/config.json": pooling}, network="0_Transformer"
    )
    found, expected = (Encoder.load(str(one)) for one in (nested, folder))
    np.testing.assert_array_equal(found.embed(TEXTS), expected.embed(TEXTS))
    assert found.fingerprint() == expected.fingerprint()


def test_length_case_and_prompt_are_those_of_the_files(written: Write) -> None:
    folder = written(
        {
            "sentence_bert_config.json": {"max_seq_length": 6, "do_lower_case": True},
            "config_sentence_transformers.json": {
                "prompts": {"query": "under ", "document": "over "},
                "default_prompt_name": "query",
            },
        }
    )
    encoder = Encoder.load(str(folder))
    expected = [states(folder, f"under {text}".lower(), 6).mean(axis=0) for text in TEXTS]
    np.testing.assert_allclose(encoder.embed(TEXTS), np.stack(expected), atol=1e-5)
    without = written({"config_sentence_transformers.json": {"prompts": {"query": "under "}}})
    assert Encoder.load(str(without)).layout.prompt == ""
    assert Encoder.load(str(without)).fingerprint() != encoder.fingerprint()


def test_a_prompt_that_is_left_out_of_the_pooling_is_refused(written: Write) -> None:
    prompts = {"prompts": {"query": "under "}, "default_prompt_name": "query"}
    pooling = {"pooling_mode_mean_tokens": True, "include_prompt": False}
    folder = written(
        {"config_sentence_transformers.json": prompts, "1_Pooling/config.json": pooling}
    )
    with pytest.raises(ModelError, match="leaves it out when it pools"):
        Encoder.load(str(folder))


def test_a_file_that_cannot_be_read_is_told(written: Write) -> None:
    folder = written({"modules.json": {"not": "a list of modules"}})
    with pytest.raises(ModelError, match="does not list modules"):
        Encoder.load(str(folder))
    (folder / "modules.json").write_text("[{")
    with pytest.raises(ModelError, match=r"modules\.json cannot be read"):
        Encoder.load(str(folder))
