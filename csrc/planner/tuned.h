// The numbers of this room that were tuned, and what set them. Measured on a CPU with 2 cores (AMD EPYC, bf16) and the
// demo model at .76 B, greedy and sampled, on the nine streams of bench/paper, unless it says otherwise.
#pragma once

namespace swiftk::tuned {

// The clock. The machine's memory changed its speed by half from one second to the next: what is compared must be near.
inline constexpr double kNewestPlain = 0.5;  // weight of the newest plain step
inline constexpr int kNear = 6;              // passes after a plain one that are compared with it
inline constexpr unsigned kSamples = 9;      // of a row count, whose median is its price

// How often proposals come true. Fewer outcomes than these follow a text faster, and know it less well.
inline constexpr double kPlanMemory = 300, kSourceMemory = 120;  // outcomes that a bucket remembers
inline constexpr double kOften = 1000;                            // outcomes that show how sure a plan usually is
inline constexpr double kCarried = 4;              // outcomes of a bucket that another text begins with,
inline constexpr double kRestored = 60;            // and another process, of a plan

// A way to draft may lose so many plain steps. Without a bound texts of 128 tokens lost up to a tenth of their speed.
// With savings of 2 steps lookup rested where it is 5.2 times as fast as plain decoding.
inline constexpr double kChance = 1;     // at first,
inline constexpr double kEarned = 0.01;  // more for every token, shared by all ways (two at least),
inline constexpr double kSavings = 8;    // no more at once, whatever was gained: a change for the worse shows soon
// A round bets this part of what may be lost. Where it bet all, an unlucky first round had drafts rest for a third of a
// short text; and long drafts promise more than they bring. Modelled clock (a step .3, a row .018), 26 cold texts of
// SmolLM2, tokens per plain step greedy and at T = .7: all 2.03 and 1.57, .5 2.11 and 1.70, .33 2.18 and 1.71, .25 2.22
// and 1.74, .15 2.26 and 1.78. By .15 texts that nearly always come true lose up to 8 % against a fixed rule.
inline constexpr double kBet = .25;
inline constexpr double kRecent = 0.97;  // weight that the rounds before keep, in the rate that decides
inline constexpr double kLeft = 256;     // tokens of a text that a draft model which has to read it first can count on
// A Mixture of Attentions that helped nothing read a prompt in 16 of the 66 plain steps that its text took.
inline constexpr double kTried = 30;  // outcomes from which on what a draft model promises counts beside another plan;
inline constexpr double kTrial = .11;  // before, this part of it: what that brings may be read for
inline constexpr double kBackOff = 64;  // tokens before a way is tried again; doubled with each failure
inline constexpr int kReplain = 64;       // rounds of drafting between two plain ones, which keep prices fresh,
inline constexpr double kDoubtful = 1.2;  // and where the rate is below this:
inline constexpr int kSoon = 16;
inline constexpr int kUnconfirmed = 64;  // plain steps after which a price that no pass has confirmed is forgotten

// How far and wide. A look at what was learned takes half a millisecond.
inline constexpr int kLook = 8;              // rounds between two looks, once the plan that drafts was tried,
inline constexpr double kLookShare = 0.005;  // or more, where they would take more than this of the time;
inline constexpr double kMoved = 1.3;        // or where a text's pace has changed by this
inline constexpr double kUnsure = 0.6;       // a plan is believed to be better by this over the root of its outcomes
inline constexpr double kPace = 0.94;        // weight that the rounds before keep in a text's pace
inline constexpr double kAlways = 0.5;     // drafting always, a plan takes its first step where sources leave it this
// Rows that a step reads beside its own at most: four rows of int4 cost what one does. They are nodes of sources,
// others of the plan, and proposals of a draft model that guides it.
inline constexpr int kBeside = 3;
// Others of the plan are worth this part of a step at least, since they take room in a tree. Modelled clock (a step
// .015, a row .0015, a ninth .0045), tokens per plain step by none, .5 and 0: SmolLM2 with int4, greedy and T = .7,
// 5.3, 5.8, 6.0 and 4.2, 4.5, 4.3; the demo model at T = 1, int3 6.9, 7.1, 7.4, int4 10.5, 10.3, 9.9.
inline constexpr double kOwn = 0.5;
// A draft model's proposals are right, all of them, with this probability at least, as is learned: a wrong one is a row
// of a step, and leaves the tree. On the modelled clock with the bundled head, 36 cold texts, tokens per plain step
// greedy and at T = 1: by .1 2.87 and 2.15, by .05 2.88 and 2.17, by .02 2.88 and 2.18; by .05 with five proposals 2.88
// and 2.14.
inline constexpr double kLeastProposal = .05;

}  // namespace swiftk::tuned
