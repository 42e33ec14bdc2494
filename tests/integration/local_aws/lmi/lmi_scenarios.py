"""The requirements for replaying each recording, and every answer that differs, with its reason.

An answer that differs on purpose is pinned: `Instead` holds what is answered in its place, and anything else fails.
docs/emulation.md holds the same reasons for readers; a test keeps the two equal.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from lmi_replay import VECTORS

if TYPE_CHECKING:
    from collections.abc import Iterator

RACE = (
    "right after a failed load, a call to the model gets 503 (not ready) or 404 (not found); both were recorded, and "
    "the emulation always answers 503"
)
CLEAR = (
    "the emulation's error names the weights that were not found; the real server's error names a command or says that "
    "the handler failed"
)
OUTLIVED = (
    "asynchronous workers of the real server end a second or two after the server; in the emulation all workers end "
    "with the server"
)
OLD = (
    "the recording was made with transformers 4.57.6, which gives another answer than the installed 5.9.0 (see "
    "02v_tf590)"
)
NO_WEIGHTS = "the weights of the model with one label were not kept"

LEFT_OUT_FILES = {
    "15_startup_failing_model.json": "has no request; see test_a_failing_model_of_the_store_ends_the_container",
    "17_startup_mixed_store.json": "has no request; see test_a_plain_file_makes_the_store_the_model",
    "21_handler_properties.json": "has no request; see test_a_handler_sees_the_recorded_properties",
}


Lane = Literal["idle", "busy", "stores"]


@dataclass(frozen=True)
class Instead:
    """An answer that the emulator gives on purpose instead of the recorded one.

    `status` and `body` are those of the answer; of a step that is no request, `status` is None and `body` the
    difference. "..." in a body stands for any text.
    """

    reason: str
    status: int | None
    body: str


@dataclass(frozen=True)
class Scenario:
    """Everything that a recording needs.

    Recordings of one `lane` are replayed one after another, the lanes side by side: those of "idle" mostly wait, those
    of "busy" compute, and those of "stores" start containers of their own.

    `store` are the models of the store at start-up (None: a container shared within the lane, empty at first), which
    listens before they are loaded where `at_once` says so; `loaded` those loaded before the first exchange. Before an
    exchange, by its index, the recorder deleted models (`deleted`, "*" for all), scaled one (`scaled`, the path of the
    PUT) and waited (`waits`, in seconds). A container of its own may run on a clock that is `speed` times faster, and
    the waits as well. `deliberate` says by index what is answered instead, `left_out` why an answer is not compared.
    """

    lane: Lane = "busy"
    store: dict[str, str] | None = None
    at_once: bool = False
    store_is_placeholder: bool = False
    loaded: tuple[str, ...] = ()
    deleted: dict[int, tuple[str, ...]] = field(default_factory=dict)
    scaled: dict[int, str] = field(default_factory=dict)
    waits: dict[int, float] = field(default_factory=dict)
    speed: float = 1.0
    deliberate: dict[int, Instead] = field(default_factory=dict)
    left_out: dict[int, str] = field(default_factory=dict)


def _before_loads(file: str) -> dict[int, tuple[str, ...]]:
    """Delete the previous model, as the recordings of load variants did before each load."""
    vectors = json.loads((VECTORS / file).read_text())["vectors"]
    return {i: ("*",) for i, vector in enumerate(vectors) if vector["name"].startswith(("load", "final ping"))}


_NOT_READY = """{
  "code": 503,
  "type": "WlmException",
  "message": "Model is not ready: q8"
}
"""
_NOT_IN_THE_HUB = """{
  "code": 500,
  "type": "EngineException",
  "message": "Failed to initialize model: option.model_id: some-org/some-model is not in the local hub ..."
}
"""
_NO_DOWNLOAD = """{
  "code": 500,
  "type": "EngineException",
  "message": "Failed to download s3://bucket/x: ..."
}
"""

SCENARIOS = {
    "01_management_mme.json": Scenario(
        lane="idle",
        deleted={71: ("tarm", "tarb", "xlmr", "xq", "xa")},
        waits={45: 0.05, 48: 2.0, 50: 0.1},
    ),
    "02_inference_text_classification.json": Scenario(
        loaded=("minilm", "deberta"),
        scaled={85: "/models/minilm?min_worker=1&max_worker=2"},
        left_out=dict.fromkeys((16, 24, 36, 38, 40, 42, 58, 63, 64, 68), OLD),
    ),
    "02v_tf590.json": Scenario(loaded=("minilm", "deberta")),
    "03_invocations_routing.json": Scenario(loaded=("minilm", "deberta")),
    "04_other_tasks.json": Scenario(left_out=dict.fromkeys((20, 21, 22), NO_WEIGHTS)),
    "05_load_variants.json": Scenario(
        deleted=_before_loads("05_load_variants.json"),
        deliberate={24: Instead(CLEAR, 500, _NOT_IN_THE_HUB), 36: Instead(CLEAR, 500, _NO_DOWNLOAD)},
    ),
    "06_queue_overflow_and_timeouts.json": Scenario(
        lane="idle", deleted={13: ("slow",), 27: ("*",), 35: ("*",)}, waits={22: 2.0, 32: 2.0, 39: 2.0}
    ),
    "07_load_failures_custom.json": Scenario(lane="idle", waits={9: 1.0, 16: 0.2}),
    "08_dynamic_batching_custom_handler.json": Scenario(lane="idle"),
    "09_worker_scaling.json": Scenario(lane="idle", deleted={19: ("*",)}, waits={15: 5.5, 34: 5.5}),
    # The recorder asked every 8 s for a minute and a half. What idles for 4 s was once found after 6 s; not here.
    "10_recovery_after_worker_death.json": Scenario(
        lane="stores",
        store={},
        speed=6.0,
        waits={5: 2.0, 10: 11.8, 22: 8.2, 24: 8.2, 29: 8.2, 34: 8.2} | dict.fromkeys((12, 14, 16, 18, 20), 8.0),
    ),
    "11_startup_single_model_dir.json": Scenario(lane="stores", store={"single/m": "minilm"}),
    "12_startup_two_models.json": Scenario(lane="stores", store={"two/a": "minilm", "two/b": "minilm"}),
    "13_startup_root_is_model.json": Scenario(lane="stores", store={"rootmodel": "bundled"}),
    "14_startup_targz_in_store.json": Scenario(lane="stores", store={"tarstore": ""}),
    "16_startup_failing_nowait.json": Scenario(
        lane="stores", store={"nowait/f": "initfail", "nowait/ok": "code1"}, at_once=True
    ),
    "18_dynamic_batching_default_handler.json": Scenario(left_out=dict.fromkeys((25, 26, 27), OLD)),
    "19_custom_codes_and_http_edges.json": Scenario(),
    "20_queue_order.json": Scenario(lane="idle"),
    "22_more_load_variants.json": Scenario(
        deleted=_before_loads("22_more_load_variants.json"), deliberate={15: Instead(RACE, 503, _NOT_READY)}
    ),
    "23_cohost_custom_attributes.json": Scenario(
        lane="stores",
        store={"mdeberta": "async_prototype@deberta", "minilm": "async_prototype"},
        store_is_placeholder=True,
    ),
}

# What `make test` replays of these: calls of the stock handlers, codes of own ones, the queue, a start with a model.
FEW = (
    "03_invocations_routing.json",
    "11_startup_single_model_dir.json",
    "19_custom_codes_and_http_edges.json",
    "20_queue_order.json",
)

# Of the sequences in tests/data/djl_lifecycle: by recording and step, as in a scenario.
_NONE_LEFT = Instead(OUTLIVED, None, "[] outlive the server, recorded ['P1', 'P2', 'P3']")
LIFECYCLE_DELIBERATE: dict[str, dict[int, Instead]] = {"28_async_unload.json": {304: _NONE_LEFT, 321: _NONE_LEFT}}
LIFECYCLE_LEFT_OUT: dict[str, dict[int, str]] = {}


def not_equal(kind: Literal["deliberate", "left_out"]) -> Iterator[tuple[str, str, list[int]]]:
    """Return (recording, reason, indices) of every step that differs on purpose or is not compared."""
    plain = {file: getattr(scenario, kind) for file, scenario in SCENARIOS.items()}
    others = LIFECYCLE_DELIBERATE if kind == "deliberate" else LIFECYCLE_LEFT_OUT
    for file, entries in (plain | others).items():
        reasons = {index: entry if isinstance(entry, str) else entry.reason for index, entry in entries.items()}
        for reason in dict.fromkeys(reasons.values()):
            yield file, reason, sorted(index for index, text in reasons.items() if text == reason)


def table(kind: Literal["deliberate", "left_out"]) -> list[str]:
    """Return the rows of `not_equal` for docs/emulation.md: recording, steps, reason."""
    return [
        f"| {file.removesuffix('.json')} | {', '.join(map(str, indices))} | {reason} |"
        for file, reason, indices in not_equal(kind)
    ]
