// A C++ host: one model, four threads with a session each, every one of them with the tokens of a lone session.
//   shared MODEL_DIR ISA
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "swiftk.h"

namespace {

using Model = std::unique_ptr<swiftk_model, decltype(&swiftk_model_release)>;
using Session = std::unique_ptr<swiftk_session, decltype(&swiftk_session_free)>;

std::vector<int32_t> generate(swiftk_model* shared, int32_t first, bool skips) {
  const Model model(swiftk_model_retain(shared), swiftk_model_release);
  swiftk_session* raw = nullptr;
  if (swiftk_session_create(model.get(), nullptr, &raw) != SWIFTK_OK) return {};
  const Session session(raw, swiftk_session_free);
  if (skips) {
    swiftk_skip skip = SWIFTK_SKIP_INIT;
    skip.exit_layer = 2;
    if (swiftk_session_set_skip(session.get(), &skip) != SWIFTK_OK) return {};
  }
  std::vector<int32_t> tokens;
  const auto keep = [](void* user, int32_t token, uint32_t, float) {
    static_cast<std::vector<int32_t>*>(user)->push_back(token);
    return 0;
  };
  swiftk_generate_params params = SWIFTK_GENERATE_PARAMS_INIT;
  params.max_new_tokens = 50;
  const int32_t prompt[] = {first, 2, 3};
  return swiftk_generate(session.get(), prompt, 3, &params, keep, &tokens) == SWIFTK_OK ? tokens : std::vector<int32_t>{};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  swiftk_load_params params = SWIFTK_LOAD_PARAMS_INIT;
  params.isa = argv[2];
  params.threads = 2;
  swiftk_model* raw = nullptr;
  if (swiftk_model_load(argv[1], &params, &raw) != SWIFTK_OK) {
    std::fprintf(stderr, "%s\n", swiftk_last_error());
    return 1;
  }
  Model model(raw, swiftk_model_release);
  std::vector<int32_t> alone[4], together[4];
  for (int i = 0; i < 4; ++i) alone[i] = generate(model.get(), i + 1, false);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&, i] { together[i] = generate(model.get(), i + 1, true); });
  for (std::thread& t : threads) t.join();
  for (int i = 0; i < 4; ++i) {
    if (!alone[i].empty() && alone[i] == together[i]) continue;
    std::fprintf(stderr, "thread %d: other tokens than alone (%s)\n", i, swiftk_last_error());
    return 1;
  }
  return 0;
}
