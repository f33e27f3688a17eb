#include "cuda/kernel_pack.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "files/family.h"

namespace swiftk::cuda {
namespace {

constexpr int kVersion = 1;

std::string text(const Json* j) { return j && j->is(Json::Type::String) ? j->string() : ""; }

int64_t whole(const Json* j) { return j && j->is_integer() ? j->integer() : -1; }

void want_usual(const Config& c) {
  if (like_llama(c)) return;
  fail(Status::Unsupported,
       std::string("[pack] a GPU has no kernels for layers of a ") + c.family->model_type + "; device 'cpu' runs it");
}

}  // namespace

void KernelPack::bad(const std::string& what) const {
  fail(Status::Checkpoint, "[pack] " + file_.path() + ": " + what);
}

KernelPack::KernelPack(const std::string& path) : file_(path) {
  uint64_t length = 0;
  if (file_.size() < sizeof length) bad("not a kernel pack, too short");
  std::memcpy(&length, file_.data(), sizeof length);
  if (length > file_.size() - sizeof length) bad("not a kernel pack, or truncated");
  const Json header = Json::parse({file_.data() + sizeof length, length}, "[pack] " + path);
  if (text(header.find("format")) != "swiftk-kernels") bad("not a kernel pack");
  if (whole(header.find("version")) != kVersion) {
    const Json* const version = header.find("version");
    bad("version is " + (version ? version->show() : "missing") + ", want " + std::to_string(kVersion));
  }
  arch_ = text(header.find("arch"));
  const Json* const shape = header.find("shape");
  const Json* const kernels = header.find("kernels");
  if (arch_.empty() || !shape || !kernels) bad("arch, shape or kernels is missing");
  read_shape(*shape);
  const char* const images = file_.data() + sizeof length + length;
  const int64_t room = file_.size() - sizeof length - length;
  for (const Json::Member& m : kernels->members()) read_kernel(m.key, m.value, images, room);
  if (const Json* const layouts = header.find("layouts")) read_layouts(*layouts);
}

void KernelPack::read_layouts(const Json& layouts) {
  static const char* const kNames[kMatrices] = {"qkv", "o_proj", "gate_up", "down", "lm_head", "embedding"};
  for (int i = 0; i < kMatrices; ++i) {
    const Json* const j = layouts.find(kNames[i]);
    if (!j) continue;
    Layout& l = layouts_[i];
    l.kernel = text(j->find("kernel"));
    l.bytes = whole(j->find("bytes"));
    const std::pair<const char*, int32_t*> numbers[] = {{"rows", &l.rows},     {"units", &l.units},   {"per", &l.per},
                                                        {"stride", &l.stride}, {"second", &l.second}, {"step", &l.step},
                                                        {"half", &l.half}};
    for (const auto& [name, out] : numbers) {
      const int64_t value = whole(j->find(name));
      if (value < 0 || value > INT32_MAX) bad(std::string("the layout of ") + kNames[i] + " has no usable " + name);
      *out = static_cast<int32_t>(value);
    }
    if (!find(l.kernel) || l.bytes <= 0)
      bad(std::string("the layout of ") + kNames[i] + " has no usable kernel or size");
  }
}

void KernelPack::read_shape(const Json& shape) {
  const std::pair<const char*, int*> sizes[] = {{"D", &shape_.D},   {"H", &shape_.H}, {"KV", &shape_.KV},
                                                {"HD", &shape_.HD}, {"F", &shape_.F}, {"V", &shape_.V}};
  for (const auto& [name, out] : sizes) {
    const int64_t value = whole(shape.find(name));
    if (value < 1 || value > INT32_MAX) bad(std::string("the shape has no usable ") + name);
    *out = static_cast<int>(value);
  }
  const std::pair<const char*, bool*> flags[] = {{"qk_norm", &shape_.qk_norm},
                                                 {"qkv_bias", &shape_.qkv_bias},
                                                 {"o_bias", &shape_.o_bias},
                                                 {"mlp_bias", &shape_.mlp_bias}};
  for (const auto& [name, out] : flags) {
    const Json* const value = shape.find(name);
    if (!value || !value->is(Json::Type::Bool)) bad(std::string("the shape has no usable ") + name);
    *out = value->boolean();
  }
  const Json* const eps = shape.find("eps");
  if (!eps || !eps->is(Json::Type::Number)) bad("the shape has no usable eps");
  shape_.eps = eps->number();
  const std::string dtype = text(shape.find("dtype"));
  const std::optional<DType> known = dtype_named(dtype);
  if (!known) bad("dtype is '" + printable(dtype) + "', want float32, bfloat16 or float16");
  shape_.dtype = *known;
  read_head(shape);
}

// Packs of heads that draft have these fields beside a model's.
void KernelPack::read_head(const Json& shape) {
  const auto size = [&](const Json& j, const char* what) {
    const int64_t value = whole(&j);
    if (value < 1 || value > INT32_MAX) bad(std::string("the shape has no usable ") + what);
    return static_cast<int>(value);
  };
  if (const Json* const wide = shape.find("wide")) shape_.wide = size(*wide, "wide");
  const Json* const apart = shape.find("apart");
  shape_.apart = apart && apart->is(Json::Type::Bool) && apart->boolean();
  const Json* const linears = shape.find("linears");
  if (!linears) return;
  if (!linears->is(Json::Type::Array)) bad("the shape has no usable linears");
  for (const Json& l : linears->items()) {
    if (!l.is(Json::Type::Array) || l.items().size() != 3 || !l.items()[2].is(Json::Type::Bool)) {
      bad("the shape has no usable linears");
    }
    shape_.linears.push_back({size(l.items()[0], "linears"), size(l.items()[1], "linears"), l.items()[2].boolean()});
  }
}

void KernelPack::read_kernel(const std::string& name, const Json& j, const char* images, int64_t room) {
  const int64_t begin = whole(j.find("begin")), end = whole(j.find("end"));
  PackedKernel k;
  k.symbol = text(j.find("symbol"));
  k.warps = static_cast<int>(whole(j.find("warps")));
  k.shared = static_cast<int>(whole(j.find("shared")));
  if (begin < 0 || end <= begin || end > room)
    bad("kernel " + printable(name) + " lies outside the file, which may be truncated");
  if (k.symbol.empty() || k.warps < 1 || k.warps > 32 || k.shared < 0)
    bad("kernel " + printable(name) + " lacks launch facts");
  k.image = images + begin;
  k.bytes = end - begin;
  if (const Json* const constants = j.find("constants")) {
    for (const Json::Member& c : constants->members()) {
      if (c.value.is_integer()) k.constants[c.key] = c.value.integer();
    }
  }
  kernels_.emplace(name, std::move(k));
}

void KernelPack::check_fits(const KernelShape& model) const {
  const Config& c = model.config;
  const auto want = [this](const char* name, auto built, auto model) {
    if (built != model) {
      bad(std::string("built for ") + name + " = " + std::to_string(built) + ", the model has " +
          std::to_string(model));
    }
  };
  want("D", shape_.D, c.D);
  want("H", shape_.H, c.H);
  want("KV", shape_.KV, c.n_kv);
  want("HD", shape_.HD, c.d);
  want("F", shape_.F, c.F);
  want("V", shape_.V, c.V);
  want("qk_norm", shape_.qk_norm, c.qk_norm);
  want("qkv_bias", shape_.qkv_bias, c.qkv_bias);
  want("o_bias", shape_.o_bias, c.o_bias);
  want("mlp_bias", shape_.mlp_bias, c.mlp_bias);
  if (std::fabs(shape_.eps - c.norm_eps) > 1e-3 * c.norm_eps) want("eps", shape_.eps, double{c.norm_eps});
  want_usual(c);
  if (model.dtype != shape_.dtype) {
    bad(std::string("built for ") + name_of(shape_.dtype) + ", the weights are " + name_of(model.dtype));
  }
  want("wide", shape_.wide, model.wide);
  want("apart", shape_.apart, model.apart);
  if (model.linears != shape_.linears) bad("built for other matrices beside the layers than the draft model has");
}

bool KernelPack::reads(Format copy) const { return find(std::string("qkv.") + name_of(copy) + ".8"); }

bool KernelPack::reads_head(Format copy) const { return find(std::string("lm_head.") + name_of(copy) + ".8"); }

const PackedKernel* KernelPack::find(const std::string& name) const {
  const auto found = kernels_.find(name);
  return found == kernels_.end() ? nullptr : &found->second;
}

const PackedKernel& KernelPack::get(const std::string& name) const {
  if (const PackedKernel* const kernel = find(name)) return *kernel;
  bad("kernel " + name + " is missing");
}

}  // namespace swiftk::cuda
