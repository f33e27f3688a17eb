// The numbers of this room that were tuned, and what set them. Measured on a CPU with 2 cores (AMD EPYC, bf16) and the
// demo model at .76 B, greedy and sampled, on the nine streams of bench/paper, unless it says otherwise.
#pragma once

namespace swiftk::tuned {

// The clock. The machine's memory changed its speed by half from one second to the next: what is compared must be near.
inline constexpr double kNewestPlain = 0.5;  // weight of the newest plain step
inline constexpr int kNear = 6;              // passes after a plain one that are compared with it
inline constexpr unsigned kSamples = 9;      // of a row count, whose median is its price
inline constexpr double kRow = 0.015;        // share of a pass per further row, before any was measured,
inline constexpr double kBeyond = 0.09;      // and of rows beyond few: those may be bound by arithmetic

// How often proposals come true. Fewer outcomes than these follow a text faster, and know it less well.
inline constexpr double kPlanMemory = 300, kSourceMemory = 120;  // outcomes that a bucket remembers
inline constexpr double kOften = 1000;                            // outcomes that show how sure a plan usually is
inline constexpr double kLine = 20, kMisses = 12;  // outcomes that the line counts as, in a bucket; misses, a prior's
inline constexpr double kCarried = 4;              // outcomes of a bucket that another text begins with,
inline constexpr double kRestored = 60;            // and another process, of a plan
inline constexpr double kTight = 0.15, kTightSlope = 60;  // inverse variances of sources' trust: first tokens show

inline constexpr double kFollowing =
    0.01;  // plain steps of what only reads a pass that was made, before it was measured

// Bounds of drafting: without a budget texts of 128 tokens lost up to a tenth; with savings of 2 plain steps lookup
// rested where it makes 5.2 of plain decoding.
inline constexpr double kOpening = 1.5;   // plain steps, before it was worth anything,
inline constexpr double kProposing = 0.5;  // where sources alone draft: most of their rounds cost a tenth of a step
inline constexpr double kEarned = 0.005;  // more for every token
inline constexpr double kSavings = 8;     // no more at once, whatever was gained: a change for the worse shows soon
// A round bets this part of what may be lost. Where it bet all, an unlucky first round had drafts rest for a third of a
// short text; and long drafts promise more than they bring. Modelled clock (a step .3, a row .018), 26 cold texts of
// SmolLM2, tokens per plain step greedy and at T = .7: all 2.03 and 1.57, .5 2.11 and 1.70, .33 2.18 and 1.71, .25 2.22
// and 1.74, .15 2.26 and 1.78. By .15 texts that nearly always come true lose up to 8 % against a fixed rule.
inline constexpr double kBet = .25;
inline constexpr double kLeastBet = 0.3;  // of a round, however little is left
inline constexpr double kFirstBet = .3;  // of a draft model alone that was tried little: a round of one says little
inline constexpr double kRecent = 0.97;  // weight that the rounds before keep, in the rate that decides
inline constexpr double kLeft = 256;     // tokens of a text that a draft model which has to read it first can count on;
inline constexpr double kReread = 0.01;  // plain steps, for every token since it was given up, that it may read for
// A Mixture of Attentions that helped nothing read a prompt in 16 of the 66 plain steps that its text took.
inline constexpr double kTried = 30;   // outcomes from which on what a draft model promises counts beside another plan;
inline constexpr double kTrial = .03;  // before, this share of a text's time, or kReread of all texts', may be read for,
// and where no other plan may draft, this one. An EAGLE head reads 600 tokens in 4 plain steps: by .03 a text of 96
// went without it.
inline constexpr double kOnlyTrial = .06;
inline constexpr double kBackOff = 64, kMostOff = 8192;  // tokens before it is tried again; doubles with every failure
inline constexpr int kReplain = 64;       // rounds of drafting between two plain ones, which keep prices fresh,
inline constexpr double kDoubtful = 1.2;  // and where the rate is below this:
inline constexpr int kSoon = 16;
inline constexpr int kUnconfirmed = 64;  // plain steps after which a price that no pass has confirmed is forgotten

// How far and wide. A look at what was learned takes half a millisecond.
inline constexpr int kLook = 8;              // rounds between two looks,
inline constexpr int kSoonLook = 1;          // while the plan that drafts was tried little,
inline constexpr double kLookShare = 0.005;  // or more, where they would take more than this of the time;
inline constexpr double kMoved = 1.3;        // or where a text's pace has changed by this
inline constexpr double kUnsure = 0.6;       // a plan is believed to be better by this over the root of its outcomes
inline constexpr double kPace = 0.94;        // weight that the rounds before keep in a text's pace,
inline constexpr double kFastest = 12;       // which is never taken to be higher
inline constexpr double kAlways = 0.5;     // drafting always, a plan takes its first step where sources leave it this
inline constexpr int kChain = 3;    // sources' nodes that a step reads at most: four rows of int4 cost what one does
inline constexpr int kProposals = 3;  // of a draft model that guides a plan, in a step: for the same reason,
// All of them right with this probability, as is learned: a wrong one is a row of a step, and leaves the tree. On the
// modelled clock with the bundled head, 36 cold texts, tokens per plain step greedy and at T = 1: by .1 2.87 and 2.15,
// by .05 2.88 and 2.17, by .02 2.88 and 2.18; by .05 with five proposals 2.88 and 2.14.
inline constexpr double kLeastProposal = .05;

}  // namespace swiftk::tuned
