"""DraftSpec: which layers a draft leaves out, and which copy of the weights it reads. Every set is allowed: a bad one
costs speed, never a token."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _core
from ..errors import InvalidArgument

_FORMAT = "swiftk skip set 1"
# What drafts may read: the model's own weights, and copies in few bits; "upper" is the upper bytes of float16 weights.
FORMS = ("own", *_core.draft_formats())
MOST_DRAFTERS = 8  # beside a model
# Names of the heads and draft models that were loaded beside the model, in their order.
DRAFTER_NAMES = ("drafter", *(f"drafter-{i}" for i in range(2, MOST_DRAFTERS + 1)))
WEIGHTS = (*FORMS, *DRAFTER_NAMES)
TRIMMED = "trimmed"  # among what a model has for drafts: a trimmed head


@dataclass(frozen=True, slots=True)
class DraftSpec:
    """attn, mlp: layers whose attention or MLP the draft skips. exit_layer: the layer from which it skips everything
    (None: no exit). weights: the weights that it reads, one of WEIGHTS or one for each layer (the vocabulary head has
    the last one's). (FORM, "drafter"): a copy guided by a loaded head; each step of the copy checks a few tokens that
    the head proposed. trimmed: the vocabulary head is trimmed to the tokens of load()'s draft_vocab, so that no others
    are drafted. window: the draft's attention sees so many tokens at the end of the text, and its first 64
    (StreamingLLM, arXiv 2309.17453); None: all of it. Blocks of 64 tokens are seen whole. heavy: beside a window it
    sees so many runs of 512 tokens, those to which the model attended most when it verified last (on a CPU)."""

    attn: tuple[int, ...] = ()
    mlp: tuple[int, ...] = ()
    exit_layer: int | None = None
    weights: str | tuple[str, ...] = "own"
    trimmed: bool = False
    window: int | None = None
    heavy: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", _weights(self.weights))
        if not isinstance(self.trimmed, bool):
            raise InvalidArgument(f"[skip] trimmed={self.trimmed!r}, want True or False")
        if self.window is not None and (type(self.window) is not int or self.window < 1):
            raise InvalidArgument(f"[skip] window={self.window!r}, want tokens, 1 or more, or None")
        if type(self.heavy) is not int or self.heavy < 0 or (self.heavy and not self.window):
            raise InvalidArgument(f"[skip] heavy={self.heavy!r}, want runs that are seen beside a window, 0 or more")
        for name in ("attn", "mlp"):
            object.__setattr__(self, name, _layers(name, getattr(self, name)))
        if self.exit_layer is not None:
            object.__setattr__(self, "exit_layer", _layers("exit_layer", [self.exit_layer])[0])

    @classmethod
    def uniform(cls, n_layers: int) -> DraftSpec:
        """SWIFT's start: both sublayers of every second layer, the first and the last kept."""
        odd = tuple(range(1, n_layers - 1, 2))
        return cls(attn=odd, mlp=odd)

    @classmethod
    def early_exit(cls, layer: int) -> DraftSpec:
        """LayerSkip's draft: the first `layer` layers."""
        return cls(exit_layer=layer)

    @classmethod
    def layers(cls, layers: Iterable[int]) -> DraftSpec:
        """Whole layers."""
        whole = tuple(layers)
        return cls(attn=whole, mlp=whole)

    @classmethod
    def load(cls, path: str | Path) -> DraftSpec:
        """Reads a card that save() wrote. InvalidArgument: the file is missing or is no card."""
        try:
            card = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise InvalidArgument(f"[skip] {path}: {error.strerror or error}") from None
        except ValueError as error:
            raise InvalidArgument(f"[skip] {path} is not JSON: {error}") from None
        if not isinstance(card, dict) or card.get("format") != _FORMAT:
            raise InvalidArgument(f'[skip] {path} is not a skip set card, want "format": "{_FORMAT}"')
        return cls.from_dict(card)

    def save(self, path: str | Path, **notes: str | int | float) -> None:
        """Writes the set as JSON, with notes beside it (model, task, score)."""
        card = {"format": _FORMAT, **self.to_dict()}
        clash = sorted(set(card) & set(notes))
        if clash:
            raise InvalidArgument(f"[skip] notes may not be called {clash[0]!r}")
        Path(path).write_text(json.dumps({**card, **notes}, indent=1) + "\n", encoding="utf-8")

    def to_dict(self) -> dict[str, Any]:
        weights = self.weights if isinstance(self.weights, str) else list(self.weights)
        layers = {"attn": list(self.attn), "mlp": list(self.mlp), "exit_layer": self.exit_layer}
        view = {"window": self.window, "heavy": self.heavy}
        return {**layers, "weights": weights, "trimmed": self.trimmed, **view}

    def arguments(self) -> dict[str, Any]:
        """As _core.DraftSpec takes them."""
        return {
            "attn": list(self.attn),
            "mlp": list(self.mlp),
            "exit_layer": -1 if self.exit_layer is None else self.exit_layer,
            "weights": [] if self.weights == "own" else list(_forms(self.weights)),
            "trimmed": self.trimmed,
            "window": self.window or 0,
            "heavy": self.heavy,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> DraftSpec:
        weights = values.get("weights", "own")
        return cls(
            values.get("attn", ()),
            values.get("mlp", ()),
            values.get("exit_layer"),
            tuple(weights) if isinstance(weights, list) else weights,
            values.get("trimmed", False),
            values.get("window"),
            values.get("heavy", 0),
        )

    @property
    def forms(self) -> frozenset[str]:
        """Copies and heads that the draft reads, without the model's own weights."""
        return frozenset(_forms(self.weights)) - {"own"}

    @property
    def drafters(self) -> frozenset[str]:
        """Names of the heads and draft models that the draft reads."""
        return self.forms & frozenset(DRAFTER_NAMES)

    @property
    def guided(self) -> bool:
        """Whether a head proposes tokens to a copy of the model."""
        return not isinstance(self.weights, str) and len(self.weights) == 2 and self.weights[1] in DRAFTER_NAMES

    @property
    def thinned(self) -> bool:
        """Whether the draft leaves out any layer."""
        return bool(self.attn or self.mlp) or self.exit_layer is not None

    def check(self, n_layers: int, copies: Iterable[str] = (*WEIGHTS, TRIMMED)) -> DraftSpec:
        """Returns the set. InvalidArgument: it does not fit a model of n_layers layers with these copies."""
        for name in ("attn", "mlp"):
            outside = [layer for layer in getattr(self, name) if layer >= n_layers]
            if outside:
                raise InvalidArgument(f"[skip] {name} has layer {outside[0]}, want 0..{n_layers - 1}")
        if self.exit_layer is not None and self.exit_layer > n_layers:
            raise InvalidArgument(f"[skip] exit_layer={self.exit_layer}, want 0..{n_layers}")
        if not (isinstance(self.weights, str) or self.guided) and len(self.weights) != n_layers:
            raise InvalidArgument(
                f"[skip] weights names {len(self.weights)} forms, want one or {n_layers}, one a layer"
            )
        absent = sorted(self.forms - set(copies))
        if absent:
            have = ", ".join(["own", *(name for name in copies if name != TRIMMED)])
            drafter = absent[0] in DRAFTER_NAMES
            how = "drafter=FOLDER) loads one" if drafter else f"draft_weights={absent[0]!r}) makes it"
            raise InvalidArgument(f"[skip] weights={absent[0]!r}, the model has {have}; load(..., {how}")
        if self.trimmed and TRIMMED not in copies:
            raise InvalidArgument("[skip] trimmed=True, the model has no trimmed head; load(draft_vocab=) makes one")
        own = self.trimmed or self.thinned or self.window or not isinstance(self.weights, str)
        if self.drafters and not self.guided and own:
            raise InvalidArgument(
                "[skip] weights='drafter' and layers of the model's, want one of both, or weights=(FORM, 'drafter')"
            )
        return self

    def skipped(self, n_layers: int) -> int:
        """Number of sublayers left out, of 2 * n_layers."""
        end = n_layers if self.exit_layer is None else self.exit_layer
        return 2 * (n_layers - end) + sum(layer < end for layer in (*self.attn, *self.mlp))

    def words(self, n_layers: int, drafters: Mapping[str, str]) -> str:
        """What drafts by it, for people. drafters: each that was loaded, by its name in WEIGHTS, in words."""
        heads = " and ".join(drafters.get(name, name) for name in sorted(self.drafters))
        if heads and not self.guided:
            return heads
        forms = "/".join(sorted(self.forms - self.drafters))
        parts = [f"{forms} copy" if forms else "own weights"]
        parts += [f"{self.skipped(n_layers)} of {2 * n_layers} sublayers skipped"] if self.thinned else []
        parts += ["trimmed head"] if self.trimmed else []
        parts += [f"seeing {self._view}"] if self.window else []
        return ", ".join(parts) + (f", guided by {heads}" if heads else "")

    @property
    def _view(self) -> str:
        heavy = f" and {self.heavy} heavy run{'s' if self.heavy > 1 else ''}" if self.heavy else ""
        return f"the last {self.window} tokens{heavy}"

    def __str__(self) -> str:
        parts = [f"attention {list(self.attn)}"] if self.attn else []
        parts += [f"mlp {list(self.mlp)}"] if self.mlp else []
        parts += [f"exit before layer {self.exit_layer}"] if self.exit_layer is not None else []
        parts += [f"{'/'.join(sorted(self.forms))} weights"] if self.forms - self.drafters else []
        parts += ["trimmed head"] if self.trimmed else []
        parts += [self._view] if self.window else []
        parts += [f"guided by the {name}" if self.guided else f"the {name}" for name in sorted(self.drafters)]
        return ", ".join(parts) or "nothing"


def resolve(value: Any, n_layers: int, copies: Iterable[str] = ()) -> DraftSpec | None:
    """The set that a value of the option skip= means: "auto", None, a DraftSpec, a list of whole layers, the path of a
    card, or the name of a copy."""
    if value is None:
        return None
    if isinstance(value, str) and value == "auto":
        return DraftSpec.uniform(n_layers)
    if isinstance(value, str) and value in WEIGHTS:
        value = DraftSpec(weights=value)
    elif isinstance(value, (str, Path)) or hasattr(value, "__fspath__"):
        value = DraftSpec.load(value)
    elif not isinstance(value, DraftSpec):
        value = DraftSpec.layers(value)
    return value.check(n_layers, copies)


def _forms(weights: Any) -> tuple[str, ...]:
    return (weights,) if isinstance(weights, str) else tuple(weights)


def _weights(value: Any) -> str | tuple[str, ...]:
    forms = _forms(value)
    for form in forms:
        if form not in WEIGHTS:
            raise InvalidArgument(f"[skip] weights={form!r}, want one of {', '.join(WEIGHTS)}, or one for each layer")
    return forms[0] if len(set(forms)) == 1 else forms


def _layers(name: str, layers: Any) -> tuple[int, ...]:
    try:
        if isinstance(layers, (str, bytes)):
            raise TypeError
        found = tuple(sorted({operator.index(layer) for layer in layers}))
    except TypeError:
        raise InvalidArgument(f"[skip] {name}={layers!r}, want layer numbers") from None
    if found and found[0] < 0:
        raise InvalidArgument(f"[skip] {name} has layer {found[0]}, want 0 or more")
    return found
