// Whether to draft in the next round: what drafting loses against plain decoding is kept small, by the clock.
#pragma once
#include <string>

namespace swiftk {

// What drafting may lose is in a purse, in plain steps: a little at first, more with every token and with all that
// drafting gains. Once the purse is empty the plain step is measured afresh, and if the loss stands, drafting is off
// for a while, longer each time. Sources that cost no step go on meanwhile, and are off in their turn once they lose;
// where they are all that drafts, a tree is never larger than the purse could lose whole.
class Purse {
 public:
  // plan: whether one drafts, and not sources alone. texts: that step together, about.
  explicit Purse(bool plan, int texts = 1);

  void start(bool alone);  // another text, alone or among others: a plain step may cost something else
  bool draft_next() const { return off_for_ == 0 && measured(); }
  bool guess_next() const { return plan_ && quiet_for_ == 0 && measured(); }  // where there is no draft
  double left() const { return purse_; }
  bool off() const { return off_for_ > 0; }

  // A round of so many tokens a text, in plain steps; drafted: by steps of a plan.
  void plain_round(double tokens);
  void drafted_round(double tokens, double steps, bool drafted);

 private:
  bool measured() const;
  void earn(double steps);
  void rest(double tokens);

  bool plan_;
  double opening_, purse_;
  double tokens_ = 0, steps_ = 0;  // of the last rounds that drafted
  int since_plain_ = 0, want_plain_ = 2;
  bool confirm_ = false;
  double off_for_ = 0, back_off_, quiet_for_ = 0;  // tokens
};

}  // namespace swiftk
