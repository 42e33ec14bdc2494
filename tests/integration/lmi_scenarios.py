"""What each recording of the real server needs to be replayed, and every exchange that is not equal, with its reason.

docs/emulation.md holds the same reasons for readers; a test keeps the two equal.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from lmi_replay import VECTORS

if TYPE_CHECKING:
    from collections.abc import Iterator

BUG = "the real server answers 500 with an exception of its own; here the caller is told what is missing"
RACE = "the real server answers before it has removed the failed model; a little later it says 404 as well"
REPLACED = "the real server gives a model up when a worker dies or is too slow; here the worker is replaced at once"
OLD = "transformers 4.57.6 answers this otherwise than 5.9.0, which is installed (see 02v_tf590)"
NO_CACHE = "answers are not kept to be fetched later (x-synchronous)"
HTTP_CLOSE = "a client that asks to close is told that the connection closes"
NO_WEIGHTS = "the weights with one label were not kept"
LATER = "asks again, every 8 s of the recorder's minute, what 5 and 13 have asked; a replay does not wait so long"
MINUTE = "what a model scaled to 0 answers more than a minute later; a replay does not wait so long"
CLEAR = "the message says what is wrong instead of where to look"

LEFT_OUT_FILES = {
    "15_startup_failing_model.json": "holds no exchange; see test_a_failing_model_of_the_store_ends_the_container",
    "17_startup_mixed_store.json": "holds no exchange; see test_a_plain_file_makes_the_store_the_model",
    "21_handler_properties.json": "holds no exchange; see test_a_handler_sees_the_recorded_properties",
}


Lane = Literal["idle", "busy", "stores"]


@dataclass(frozen=True)
class Scenario:
    """What a recording needs.

    Recordings of one `lane` are replayed one after another, the lanes side by side: those of "idle" mostly wait, those
    of "busy" compute, and those of "stores" start containers of their own.

    `store` are the models of the store at start-up (None: a container shared within the lane, empty at first), which
    listens before they are loaded where `at_once` says so; `loaded` those loaded before the first exchange. Before an
    exchange, by its index, the recorder deleted models (`deleted`, "*" for all), scaled one (`scaled`, the path of the
    PUT) and waited (`waits`, in seconds). `deliberate` and `left_out` give reasons by index; `skips_left_out` keeps
    what is left out from being sent.
    """

    lane: Lane = "busy"
    store: dict[str, str] | None = None
    at_once: bool = False
    store_is_placeholder: bool = False
    loaded: tuple[str, ...] = ()
    deleted: dict[int, tuple[str, ...]] = field(default_factory=dict)
    scaled: dict[int, str] = field(default_factory=dict)
    waits: dict[int, float] = field(default_factory=dict)
    deliberate: dict[int, str] = field(default_factory=dict)
    left_out: dict[int, str] = field(default_factory=dict)
    skips_left_out: bool = False

    @property
    def skipped(self) -> set[int]:
        """What is not even sent; other exchanges that are left out are sent, since later ones may build on them."""
        return set(self.left_out) if self.skips_left_out else set()


def _before_loads(file: str) -> dict[int, tuple[str, ...]]:
    """In recordings of load variants each model was deleted before the next one."""
    vectors = json.loads((VECTORS / file).read_text())["vectors"]
    return {i: ("*",) for i, vector in enumerate(vectors) if vector["name"].startswith(("load", "final ping"))}


SCENARIOS = {
    "01_management_mme.json": Scenario(
        lane="idle",
        deleted={71: ("tarm", "tarb", "xlmr", "xq", "xa")},
        waits={45: 0.05, 48: 2.0, 50: 0.1},
        deliberate=dict.fromkeys((33, 34, 35, 36, 37, 38, 54), BUG) | {48: "the real server leaks a second worker"},
    ),
    "02_inference_text_classification.json": Scenario(
        loaded=("minilm", "deberta"),
        scaled={85: "/models/minilm?min_worker=1&max_worker=2"},
        deliberate={79: NO_CACHE},
        left_out=dict.fromkeys((16, 24, 36, 38, 40, 42, 58, 63, 64, 68), OLD),
    ),
    "02v_tf590.json": Scenario(loaded=("minilm", "deberta"), deliberate={79: NO_CACHE}),
    "03_invocations_routing.json": Scenario(loaded=("minilm", "deberta")),
    "04_other_tasks.json": Scenario(left_out={18: RACE} | dict.fromkeys((20, 21, 22), NO_WEIGHTS)),
    "05_load_variants.json": Scenario(
        deleted=_before_loads("05_load_variants.json"), deliberate={24: CLEAR, 36: CLEAR}, left_out={37: RACE}
    ),
    "06_queue_overflow_and_timeouts.json": Scenario(
        lane="idle",
        deleted={13: ("slow",), 27: ("*",), 35: ("*",)},
        waits={22: 2.0, 32: 2.0, 39: 2.0},
        deliberate=dict.fromkeys((18, 19, 20, 22, 23, 24, 30, 32, 33, 34, 39), REPLACED),
    ),
    "07_load_failures_custom.json": Scenario(lane="idle", waits={9: 1.0, 16: 0.2}),
    "08_dynamic_batching_custom_handler.json": Scenario(
        lane="idle",
    ),
    "09_worker_scaling.json": Scenario(lane="idle", deleted={19: ("*",)}, waits={15: 5.5, 34: 5.5}),
    "10_recovery_after_worker_death.json": Scenario(
        lane="idle",
        waits={5: 2.0, 11: 5.5, 13: 5.5},
        deliberate=dict.fromkeys((5, 8), REPLACED),
        left_out=dict.fromkeys((10, 12, 14, 16, 18, 20, 22), LATER)
        | dict.fromkeys((15, 17, 19, 21, 23), LATER)
        | dict.fromkeys((25, 28, 30, 33, 35), MINUTE),
        skips_left_out=True,
    ),
    "11_startup_single_model_dir.json": Scenario(lane="stores", store={"single/m": "minilm"}),
    "12_startup_two_models.json": Scenario(lane="stores", store={"two/a": "minilm", "two/b": "minilm"}),
    "13_startup_root_is_model.json": Scenario(lane="stores", store={"rootmodel": "bundled"}),
    "14_startup_targz_in_store.json": Scenario(lane="stores", store={"tarstore": ""}),
    "16_startup_failing_nowait.json": Scenario(
        lane="stores", store={"nowait/f": "initfail", "nowait/ok": "code1"}, at_once=True
    ),
    "18_dynamic_batching_default_handler.json": Scenario(
        deliberate={35: "the real server mixes query parameters into a batch and loses an answer"},
        left_out=dict.fromkeys((25, 26, 27), OLD),
    ),
    "19_custom_codes_and_http_edges.json": Scenario(deliberate={17: HTTP_CLOSE, 20: HTTP_CLOSE}),
    "20_queue_order.json": Scenario(
        lane="idle",
    ),
    "22_more_load_variants.json": Scenario(
        deleted=_before_loads("22_more_load_variants.json"),
        deliberate={
            11: "low_cpu_mem_usage loads another kind of model there, which then fails",
            38: CLEAR,
            41: "streaming is for models that generate; an encoder answers as usual",
        },
        left_out={7: RACE, 35: RACE},
    ),
    "23_cohost_custom_attributes.json": Scenario(
        lane="stores",
        store={"mdeberta": "async_prototype@deberta", "minilm": "async_prototype"},
        store_is_placeholder=True,
    ),
}


def not_equal(kind: Literal["deliberate", "left_out"]) -> Iterator[tuple[str, str, list[int]]]:
    """(recording, reason, indices) of every exchange that differs on purpose, or that is left out."""
    for file, scenario in SCENARIOS.items():
        reasons: dict[int, str] = getattr(scenario, kind)
        for reason in dict.fromkeys(reasons.values()):
            yield file, reason, sorted(index for index, text in reasons.items() if text == reason)


def table(kind: Literal["deliberate", "left_out"]) -> list[str]:
    """The rows of `not_equal` as docs/emulation.md has them: recording without its ending, exchanges, reason."""
    return [
        f"| {file.removesuffix('.json')} | {', '.join(map(str, indices))} | {reason} |"
        for file, reason, indices in not_equal(kind)
    ]
