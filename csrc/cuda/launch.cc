#include "cuda/launch.h"

#include "base/debug.h"

namespace swiftk::cuda {

bool wants_overlap(const Device& device) { return debug_switch("overlap", true) && device.overlaps; }

Result launch(const Driver& driver, const Function& f, const Grid& grid, Stream stream, void** parameters,
              bool overlap) {
  if (!overlap || !f.early) {
    return driver.cuLaunchKernel(f.handle, grid.x, grid.y, grid.z, f.threads, 1, 1, f.shared, stream, parameters,
                                 nullptr);
  }
  LaunchAttribute early = {kProgrammaticStreamSerialization, {}, 1, {}};
  const LaunchConfig config = {grid.x, grid.y, grid.z, f.threads, 1, 1, f.shared, stream, &early, 1};
  return driver.cuLaunchKernelEx(&config, f.handle, parameters, nullptr);
}

}  // namespace swiftk::cuda
