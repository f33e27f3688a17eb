// safetensors: 8 bytes of little-endian header length, a JSON header, then the data that its offsets cut into tensors.
#pragma once
#include <string>
#include <vector>

#include "files/checkpoint.h"
#include "files/file_writer.h"

namespace swiftk {

// Throws Error(Checkpoint) that names the file: missing, truncated, header not JSON, offsets outside the file.
std::vector<RawTensor> read_safetensors(const std::string& path);
// In their order; data begin on a page.
void write_safetensors(const std::string& path, const std::vector<RawTensor>& tensors, const Progress& progress);

}  // namespace swiftk
