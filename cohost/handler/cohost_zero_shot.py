"""Zero-shot classification: each text forms one pair with each label, and pairs of different requests share batches.

Scores are those of `transformers.ZeroShotClassificationPipeline`.
"""

from __future__ import annotations

import string
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .cohost_classification import softmax
from .cohost_errors import BadInputError, TooLargeError, bad
from .cohost_request import ONLY_FIRST, check_names, flag, read_cut, text_of
from .cohost_tasks import Plan, Want
from .cohost_texts import Text, check_text, read_texts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .cohost_options import Options
    from .cohost_request import Call, LengthRule
    from .cohost_tasks import Floats

_PARAMETERS = ("candidate_labels", "hypothesis_template", "multi_label")
_TEMPLATE = "This example is {}."
_LONGEST_TEMPLATE = 10_000
_ENTAILMENT = "entail"


class ZeroShotClassification:
    """The task zero-shot-classification.

    `label2id` comes from the model's configuration; one of its labels must start with "entail".
    """

    def __init__(self, *, label2id: Mapping[str, int], model: str, options: Options, rule: LengthRule) -> None:
        """Prepare the task; raise ValueError if no label of the model starts with "entail"."""
        self._entailment = entailment_index(label2id, model)
        # As in transformers' pipeline: contradiction is the first output, or the last if the first is entailment.
        self._contradiction = -1 if self._entailment == 0 else 0
        self._options = options
        self._rule = rule

    def plan(self, call: Call) -> Plan:
        """Return the plan for a call with the parameters candidate_labels, hypothesis_template and multi_label.

        Raises:
            BadInputError: a text, label or parameter has a wrong type or value.
            TooLargeError: texts times labels exceed `max_sequences_per_request`, or a text is too long.
        """
        check_names(call.parameters, _PARAMETERS)
        labels = _labels(call.parameters, self._options.max_characters_per_text)
        template = _template(call.parameters)
        multi_label = flag(call.parameters, "multi_label", default=False) or len(labels) == 1
        texts = [text.first for text in read_texts(call.inputs, self._options, pairs=False)]
        if len(texts) * len(labels) > self._options.max_sequences_per_request:
            raise TooLargeError(
                f"candidate_labels: {len(labels)} labels for {len(texts)} texts are over the limit of "
                f"{self._options.max_sequences_per_request} pairs a request; send fewer texts at once"
            )
        hypotheses = [template.format(label) for label in labels]
        pairs = [Text(text, hypothesis) for text in texts for hypothesis in hypotheses]
        cut = replace(read_cut(call.parameters, self._rule, ONLY_FIRST), second_field="parameters.candidate_labels")

        def answer(outputs: Sequence[Floats]) -> str:
            logits = np.stack(outputs).reshape(len(texts), len(labels), -1)
            return text_of(
                [
                    self._ranked(text, labels, rows, multi_label=multi_label)
                    for text, rows in zip(texts, logits, strict=True)
                ]
            )

        return Plan(pairs, cut, Want.LOGITS, answer)

    def _ranked(self, text: str, labels: Sequence[str], logits: Floats, *, multi_label: bool) -> dict[str, Any]:
        """Return one text's labels with their scores, best first; `logits` has the shape (labels, outputs)."""
        if multi_label:
            scores = softmax(logits[:, [self._contradiction, self._entailment]])[:, 1]
        else:
            scores = softmax(logits[:, self._entailment])
        order = scores.argsort()[::-1]
        return {"sequence": text, "labels": [labels[i] for i in order], "scores": scores[order].tolist()}


def entailment_index(label2id: Mapping[str, int], model: str) -> int:
    """Return the index of the output that means "the hypothesis follows from the text" (entailment).

    Raises:
        ValueError: no label starts with "entail"; transformers would silently take the last output.
    """
    for label, index in label2id.items():
        if label.lower().startswith(_ENTAILMENT):
            return index
    labels = ", ".join(label2id)
    raise ValueError(
        f"task: {model} has the labels {labels}, and zero-shot-classification needs one that starts with "
        '"entailment"; choose a model trained on natural language inference, or task text-classification'
    )


def _labels(parameters: Mapping[str, Any], most_characters: int) -> list[str]:
    given = parameters.get("candidate_labels")
    labels = [part.strip() for part in given.split(",") if part.strip()] if isinstance(given, str) else given
    if not isinstance(labels, list) or not labels:
        raise bad("parameters.candidate_labels", given, "a list of labels, or one text with commas")
    return [
        check_text(label, f"parameters.candidate_labels[{index}]", most_characters)
        for index, label in enumerate(labels)
    ]


def _template(parameters: Mapping[str, Any]) -> str:
    """Return the hypothesis template; its fields may have no format, since `{:99999999}` would make a huge text.

    Raises:
        BadInputError: the template has no {} for the label, or something else in braces.
    """
    template = parameters.get("hypothesis_template")
    if template is None:
        return _TEMPLATE
    check_text(template, "parameters.hypothesis_template", _LONGEST_TEMPLATE)
    try:
        fields = [part[1:] for part in string.Formatter().parse(template) if part[1] is not None]
    except ValueError as error:
        raise BadInputError(f"parameters.hypothesis_template: {error}; send a text with one {{}}") from error
    plain = all(not spec and conversion is None for _, spec, conversion in fields)
    names = [name for name, _, _ in fields]
    if not plain or not (names == [""] or (names and set(names) == {"0"})):
        raise bad("parameters.hypothesis_template", template, "a text with one {} for the label")
    return str(template)
