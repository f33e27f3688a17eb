// Beliefs before anything was seen, and what set them.
#pragma once

namespace swiftk {

// The belief before anything was seen: the best token is right with the probability whose logit is level + slope *
// confidence, and the r-th other takes first * r^-power * ratio^(r - 1) of its misses.
struct Prior {
  double level, slope;
  double level_tight, slope_tight;  // inverse variances
  double first, power, ratio;
  double share(int r) const;
};

// On the streams of bench/paper, greedy and sampled: a draft without some of its sublayers; a copy of the weights in
// fewer bits, which agrees with the model where neither is sure of anything; and a trained head (EAGLE-2, EAGLE-3,
// block), which knows how sure it may be: one that is never sure promises little.
inline constexpr Prior kThinned{0.8, 0.4, 1.5, 20.0, 0.25, 1, 1}, kWhole{3.7, 0.3, 2.0, 20.0, 0.75, 0, 0.2},
    kHead{1.0, 0.8, 1.5, 20.0, 0.25, 1, 1};

// Sources trust their own proposals as draft/sources/registry.h says, with these inverse variances: first tokens show.
inline constexpr double kTight = 0.15, kTightSlope = 60;
// Outcomes that a prior's line counts as, in a bucket, and that its misses count as.
inline constexpr double kLine = 20, kMisses = 12;
// Prices, in plain steps: a further row of a pass, one beyond few (those may be bound by arithmetic), and a step that
// only reads a pass which was made.
inline constexpr double kRow = 0.015, kBeyond = 0.09, kFollowing = 0.01;

}  // namespace swiftk
