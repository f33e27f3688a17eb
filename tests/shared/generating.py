"""What tests of generate() share: a prompt, and the two ways of decoding it that must agree."""

LAYERS = 4
N = 40
PROMPT = "Question: how many apples"
HARSH = {"speculate": "always", "gate": 0.0, "max_draft": 6}


def plain(lm, prompt=PROMPT, **options):
    return lm.generate(prompt, **{"max_new_tokens": N, "ignore_eos": True, **options, "speculate": False})


def drafted(lm, prompt=PROMPT, **options):
    return lm.generate(prompt, **{"max_new_tokens": N, "ignore_eos": True, **HARSH, **options})
