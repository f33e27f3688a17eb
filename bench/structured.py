"""Structured output: what drafts bring beside plain masked decoding, and what tokens that are forced bring of that."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from swiftk.text.grammar import Grammar

from .harness import Study
from .lanes import ABOUT_COLUMNS, COLUMNS, DEFAULT, GREEDY, Way
from .plots import bars
from .texts import Text


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


_WORD, _NUMBER = {"type": "string", "maxLength": 12}, {"type": "integer", "minimum": 0, "maximum": 9999}
_PERSON = _object(first_name=_WORD, last_name=_WORD, age=_NUMBER, newsletter={"type": "boolean"})
FORMS = {
    "call": _object(
        name={"enum": ["get_weather", "get_forecast", "set_location"]},
        arguments=_object(location=_WORD, temperature_unit={"enum": ["celsius", "fahrenheit"]}, days=_NUMBER),
    ),
    "records": {"type": "array", "items": _PERSON, "minItems": 4, "maxItems": 4},
    "invoice": _object(
        invoice_number=_NUMBER,
        customer=_PERSON,
        positions={
            "type": "array",
            "items": _object(article_number=_NUMBER, description=_WORD, quantity=_NUMBER, unit_price=_NUMBER),
            "minItems": 3,
            "maxItems": 3,
        },
        currency={"enum": ["CHF", "EUR", "USD"]},
        payment_terms_days={"enum": [10, 30, 60]},
    ),
    "prose": _object(summary={"type": "string", "minLength": 200, "maxLength": 400}),
}
PROMPT = "Question: What is in the record? Answer as JSON.\nAnswer:"
UNFORCED = Way("default, nothing forced")
NOTES = (
    "each schema twice, greedy and at T = 1; speed-ups are over plain decoding under the same schema; nothing forced: "
    "the same without the source that proposes what the schema leaves no choice of; by grammar: tokens that it "
    "proposed; prose: one long string, for contrast"
)


def main() -> None:
    study = Study("structured", __doc__, tokens=256, streams=tuple(FORMS), loading={})
    for name, schema in study.parts({name: FORMS[name] for name in study.streams}):
        text = [Text(name, (tuple(study.lm.encode(PROMPT)),))]
        asked = {"response_format": {"type": "json_schema", "schema": schema}, "ignore_eos": False}
        pairs = []
        for sampling in (GREEDY, {"temperature": 1.0}):
            study.models.forget()
            pairs += study.measure(text, [DEFAULT], **asked, **sampling)
            study.models.forget()
            with patch.object(Grammar, "forced", lambda self: []):
                pairs += study.measure(text, [UNFORCED], **asked, **sampling)
        for way, row in study.add(name, pairs).items():
            its = [pair.result for pair in pairs if pair.way == way]
            row["forced"] = sum(r.sources.count("grammar") for r in its) / sum(len(r.tokens) for r in its)
    columns = {"schema": "part", "way": "way", **COLUMNS, "by grammar": "forced:.0%"}
    panels = [bars(f"speed-up, {name}", "speedup", part=name) for name in study.streams]
    study.finish(columns, ABOUT_COLUMNS, NOTES, panels=panels)


if __name__ == "__main__":
    main()
