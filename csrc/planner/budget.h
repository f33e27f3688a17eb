// Whether to draft in the next round: what drafting loses against plain decoding is kept small, by the clock.
#pragma once
#include <string>

namespace swiftk {

// A budget holds what a way to draft may lose, in plain steps: a little at first, more with every token and with all
// that the way gains. Once the budget is empty the plain step is measured afresh, and if the loss stands, the way is
// off for a while, longer each time. Plans have one, and sources alone another: neither loses what the other has
// gained.
class Budget {
 public:
  // opening: plain steps that may be lost before anything was gained. texts: that step together, about.
  explicit Budget(double opening, int texts = 1);

  // Another text, alone or among others: a plain step may cost something else, and what did not come true in the texts
  // before may in this one. A rest ends, if it was long enough to earn what may be lost now.
  void start(bool alone);
  bool measured() const;  // a plain step was, lately
  double left() const { return budget_; }
  bool off() const { return off_for_ > 0; }
  // Tokens per plain step of the rounds before drafting was given up last.
  double lost_rate() const { return lost_rate_; }

  void switched();            // another plan drafts: what the one before lost is not held against it
  void wake();                // a plan was found that promises to pay
  void go_on();               // drafting was given up, another plan is known to pay: once, until one has proved itself
  void take_over();           // the same, when drafting was just given up
  void charge(double steps);  // spent for drafts, outside of a round
  void read(double steps);    // a text that is drafted in from now on: out of what was gained, not of a first chance

  // A round of so many tokens a text. Returns whether the way was just given up.
  bool plain_round(double tokens);
  // It took so many plain steps. own: by this way.
  void drafted_round(double tokens, double steps, bool own);

 private:
  void earn(double steps);
  void rest(double tokens);
  void another_chance();

  double opening_, budget_;
  double tokens_ = 0, steps_ = 0;  // what the last rounds that drafted brought, and took in plain steps
  double lost_rate_ = 1;
  int since_plain_ = 0, want_plain_ = 2;
  bool confirm_ = false;
  bool failed_ = false, failed_before_ = false;  // the last plan that drafted, and the one before it
  double off_for_ = 0, back_off_, rested_ = 0;   // tokens
};

}  // namespace swiftk
