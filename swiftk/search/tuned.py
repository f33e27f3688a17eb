"""Every number of the searches that was tuned, and what set it. Simulated texts are those of tests/policy."""

# Scoring
SHARE = 0.02  # of decoding time: with .045 for the first 200 tokens short answers of SmolLM2 lost 4 to 13 %
UNMEASURED = 0.06  # plain steps for a token scored at a plain step's price, at first: by .1 exits came a text later
FIRST, WINDOW = 20, 32  # tokens of a text's first window, and of others: on a CPU 32 rows cost little more than eight
WINDOWS = 8  # of evidence that a configuration keeps; by 12 exits did not follow a change of text
MOVES = 13  # candidates of SWIFT's kind to one pass for exits and one by dynamic programming; one of them is random
DP_WIDTH = 24  # sublayers that dynamic programming leaves out at most; each costs it as much as half a scored token

# Comparing
FIELD = 4  # undecided candidates at a time; more share too few scores (simulated texts)
MARGIN = 0.4  # a lead counts beyond this over the root of the outcomes: one change in eight without a gain is random
PAYS = 1.02  # tokens per plain step from which drafting is worth while: a round's own overhead

# Following a text
MEMORY = 0.98  # weight that measurements before keep: 50 rounds
FAST = 0.2  # weight of a new measurement of what scoring costs
DRIFT, ALARM = 0.2, 12.0  # loss a round that is tolerated, and tokens of loss beyond it that re-open the search
PROOF = 60  # rounds after which a configuration must have kept its lead over the one before
ALIKE, NEAR = 0.2, 0.9  # cosines of prompts of one kind (bench/paper/data): at least; share of the nearest one's

# Prices of sublayers
TRUST, NOISE = 0.05, 0.02  # error of the prior and of a measurement, in plain steps (planted prices in tests)
