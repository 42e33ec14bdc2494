"""Write the model with which handlers are compared, and the model folders that a server loads."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

import cohost.handler
from cohost.archives.properties import dumps

TOKENIZER = Path(__file__).parents[1] / "local_aws" / "data" / "hub" / "lmi-cohost" / "tiny-minilm-nli"
HANDLER = Path(cohost.handler.__file__).parent
LIMIT = 512
SPECIAL_TOKENS = 2
BERT, DEBERTA = "bert", "deberta"
POSITION_SPAN = 512
# The settings that DeBERTa v3 models have in common (config.json of microsoft/mdeberta-v3-base).
DEBERTA_V3 = {
    "relative_attention": True,
    "position_buckets": POSITION_SPAN // 2,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "type_vocab_size": 0,
}
MEDIAN_TOKENS, SPREAD = 30, 0.8

STOCK_COPY = "copy of stock"

# The unchanged stock handler, on the device that an option names: the embedded server has it on the CPU only.
_STOCK_COPY_SOURCE = """
import json, transformers
from djl_python import Output
pipeline = None
def handle(inputs):
    global pipeline
    if pipeline is None:
        model, device = inputs.get_property("model_id"), inputs.get_property("device")
        pipeline = transformers.pipeline("text-classification", model=model, device=device)
    if inputs.is_empty():
        return None
    body = inputs.get_as_json()
    texts = body["inputs"] if isinstance(body["inputs"], list) else [body["inputs"]]
    return Output().add_as_json(pipeline(texts, **body.get("parameters", {})))
"""


@dataclass(frozen=True)
class Shape:
    """A model's architecture, bert or deberta, and its size."""

    architecture: str
    layers: int
    hidden: int

    def flops(self, tokens: int) -> int:
        """Return the floating point operations for one text, in linear layers and attention; a multiply-add is two."""
        attention = 4 * tokens**2 * self.hidden
        if self.architecture == DEBERTA:
            # The products of queries and of keys with all relative positions.
            attention += 4 * tokens * POSITION_SPAN * self.hidden
        return self.layers * (24 * tokens * self.hidden**2 + attention)


def write_weights(folder: Path, shape: Shape, vocabulary: int = 2000) -> Path:
    """Write a model with three labels, a tokenizer of 2,000 words, and random weights that are the same in each run.

    A `vocabulary` above 2,000 adds rows of embeddings that no word of the tokenizer uses.
    """
    torch.manual_seed(0)
    size: dict[str, Any] = {
        "vocab_size": vocabulary,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.hidden // 32,
        "intermediate_size": 4 * shape.hidden,
        "max_position_embeddings": LIMIT,
        "num_labels": 3,
        "id2label": {0: "entailment", 1: "neutral", 2: "contradiction"},
        "label2id": {"entailment": 0, "neutral": 1, "contradiction": 2},
    }
    if shape.architecture == DEBERTA:
        config = transformers.DebertaV2Config(**size, **DEBERTA_V3)
        model = transformers.DebertaV2ForSequenceClassification(config)
    else:
        model = transformers.BertForSequenceClassification(transformers.BertConfig(**size))
    # Random weights leave labels undecided, which the check of half precision would take for a changed label.
    model.classifier.bias.data = torch.tensor([1.0, 0.0, -1.0])
    model.save_pretrained(folder)
    for file in TOKENIZER.glob("*token*.json"):
        shutil.copy(file, folder)
    return folder


def write_model(folder: Path, weights: Path, handler: str, code: Path = HANDLER, **options: object) -> Path:
    """Write the folder to which a model's archive unpacks, with the stock or the batching handler and its options.

    `code` is the folder of the batching handler's modules.
    """
    folder.mkdir(parents=True)
    properties: dict[str, Any] = {
        "engine": "Python",
        "option.model_id": weights,
        "option.task": "text-classification",
        "option.rolling_batch": "disable",
        "cpu.minWorkers": 1,
        "cpu.maxWorkers": 1,
    }
    if handler == "batched":
        properties |= {"option.entryPoint": "model.py", "option.async_mode": "true", "option.log_interval_s": 5}
        for file in code.glob("*.py"):
            if file.name != "__init__.py":
                shutil.copy(file, folder)
    elif handler == STOCK_COPY:
        (folder / "model.py").write_text(_STOCK_COPY_SOURCE)
    properties |= {f"option.{name}": value for name, value in options.items()}
    text = dumps({name: str(value) for name, value in properties.items()})
    (folder / "serving.properties").write_text(text, encoding="ascii")
    return folder


def texts_of_mixed_lengths(number: int) -> list[str]:
    """Return the same texts in each run; their lengths are log-normal with median 30, from 3 tokens to the limit."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(TOKENIZER)
    words = sorted(word for word in tokenizer.get_vocab() if word.isalpha() and tokenizer.tokenize(word) == [word])
    rng = random.Random(0)  # noqa: S311 - reproducible
    texts = []
    for _ in range(number):
        tokens = int(min(LIMIT, max(3, MEDIAN_TOKENS * rng.lognormvariate(0, SPREAD))))
        texts.append(" ".join(rng.choice(words) for _ in range(tokens - SPECIAL_TOKENS)))
    return texts
