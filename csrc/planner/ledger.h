// A ledger keeps the losses of each way to draft, and says whether a way may be tried.
#pragma once
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace swiftk {

// A round with drafts: plain steps, by what is known of prices; seconds, and those of its verification.
struct Spent {
  double steps, seconds, verify;
};

// Every way has an account, in plain steps: a chance at first, its part of a little for every token, and all that it
// gains. Once an account is empty the way waits until the plain step was measured afresh. If the loss stands, it rests,
// longer each time. No way loses what another has gained.
class Ledger {
 public:
  static constexpr int kSources = -2, kDirected = -1;  // sources alone; plans that a host names one after the other.
                                                       // Other plans go by their numbers

  // Another text: a plain step may cost something else, unless one was measured a few rounds ago. Drafts that did not
  // come true in the texts before may in this one, so rests end that were long enough to earn what may be lost now.
  void start();
  bool measured() const;  // a plain step was, lately
  // May the way be tried?
  bool affords(int way) const { return !rests(way) && left(way) > 0; }
  double left(int way) const { return of(way).balance; }  // that it may lose
  double bet(int way) const;                              // the part of it that one round may bet
  bool rests(int way) const { return of(way).off_for > 0; }
  // How often it was given up, since it paid.
  int failures(int way) const { return of(way).failures; }
  // Tokens per plain step that the way brought which was given up last.
  double lost_rate() const { return lost_rate_; }

  // A round without drafts: tokens of each text, and seconds of its pass. Returns whether a way was just given up.
  bool plain_round(double tokens, double seconds);
  void drafted_round(int way, double tokens, const Spent&);
  void charge(int way, double steps);  // spent outside of a round
  // Plain steps that reading a text may take of a way whose promises count little: a share of the time that it waited.
  double earned(int way) const;
  void read(int way, double steps);  // of a text that it drafts from now on: out of its gains, not of its chance
  void changed(int way);             // another plan goes by this name: what the one before lost is not held against it
  void wake(int way);                // it promises to pay
  void forget(int way);              // this name is another's from now on

 private:
  struct Account {
    double balance;                // plain steps
    double tokens = 0, steps = 0;  // what its last rounds brought, and took in plain steps
    double off_for = 0, back_off;  // tokens that it rests; will the next time
    double waited;                 // tokens since it was given up, or since the first
    int failures = 0;
  };
  Account of(int way) const;
  Account& at(int way);
  void pass(double tokens);
  // Charges rounds since the last plain step by the one that was measured now, where that is less: on a machine that
  // has become slower drafts looked dear.
  void correct();

  double earned_ = 0;  // plain steps that a way has earned which was never tried
  double tokens_ = 0;
  std::map<int, Account> accounts_;
  int last_ = kSources;                       // the way that drafted last
  std::optional<int> doubted_;                // the way whose loss the next plain steps confirm
  double step_ = 0;                           // seconds of the shortest plain step since the last draft
  std::vector<std::pair<int, Spent>> since_;  // rounds since the last plain step, by their ways
  int since_plain_ = 0, want_plain_ = 1;
  double lost_rate_ = 1;
};

}  // namespace swiftk
