"""Who proposes tokens in text that repeats itself and in noise: the draft plan, sources without a draft step, or both.

A model of 13 M parameters copies nothing that it would not write anyway. So text that repeats itself is made of its own
words: a prompt, the model's greedy answer, and the prompt again, as in editing code (again: code) or quoting prose.
Noise is prompts of random tokens at temperature 1.5, where no source has anything to go by.
"""

from __future__ import annotations

from collections import Counter

from swiftk.draft.sources import DRAFTERS

from .harness import Study
from .lanes import ABOUT_COLUMNS, COLUMNS, GREEDY, Way
from .plots import heat
from .texts import Text, noise

AGAIN = {"again: code": "humaneval", "again: prose": "summarization"}
PROMPT, ANSWER = 128, 96  # tokens of what is written again
GIVEN = {"host", "corpus"}  # these propose what a host or a user gives them
WAYS = [Way(name, {"drafter": name}) for name, one in DRAFTERS.items() if not one.beside and name not in GIVEN]
NOTES = (
    "accepted: tokens, by what proposed them; lookup, lookahead, parallel and template (Token Recycling's tree) take "
    "all that they propose, as their papers do, until drafting is seen to lose"
)


def again(study: Study, name: str) -> list[Text]:
    """The model's own words, and their beginning once more."""
    found = []
    for text in study.texts(AGAIN[name], most=PROMPT):
        prompt = text.prompt
        answer = study.lm.generate(prompt, max_new_tokens=ANSWER, ignore_eos=True, speculate=False, **GREEDY)
        found.append(Text(name, ((*prompt, *answer.tokens, *prompt),)))
    return found


def main() -> None:
    study = Study("sources", __doc__, tokens=96, streams=(*AGAIN, "noise"), loading={})
    for name, _ in study.parts(dict.fromkeys(study.streams)):
        if name == "noise":
            texts, sampling = noise(study.lm.config["vocab_size"], study.count), {"temperature": 1.5}
        else:
            texts, sampling = again(study, name) if name in AGAIN else study.texts(name), GREEDY
        pairs = study.measure(texts, WAYS, **sampling)
        for way, row in study.add(name, pairs).items():
            stats = [pair.result.stats for pair in pairs if pair.way == way]
            by = sum((Counter(s.accepted_by) for s in stats), Counter())
            row["accepted"] = ", ".join(f"{source} {n}" for source, n in by.most_common())
    columns = {"stream": "part", "drafter": "way", **COLUMNS, "accepted": "accepted"}
    study.finish(columns, ABOUT_COLUMNS, NOTES, panels=[heat("speed-up")], width=5)


if __name__ == "__main__":
    main()
