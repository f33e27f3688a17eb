// A small strict JSON reader (RFC 8259) for config files and safetensors headers.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace swiftk {

class Json {
 public:
  enum class Type : uint8_t { Null, Bool, Number, String, Array, Object };
  struct Member;
  static constexpr int kMaxDepth = 64;

  // Throws Error(Checkpoint) "<where>: not valid JSON at byte N: ...". Rejects what some readers let pass: trailing
  // commas, comments, NaN, a byte-order mark, duplicate keys, invalid UTF-8, lone surrogates, text after the value.
  static Json parse(std::string_view text, const std::string& where);

  Type type() const { return type_; }
  bool is(Type t) const { return type_ == t; }
  bool boolean() const { return boolean_; }
  double number() const { return number_; }
  // Written without fraction or exponent and within int64: integer() is exact.
  bool is_integer() const { return type_ == Type::Number && exact_; }
  int64_t integer() const { return integer_; }
  const std::string& string() const { return string_; }
  const std::vector<Json>& items() const { return items_; }        // of an array
  const std::vector<Member>& members() const { return members_; }  // of an object, sorted by key
  // The member of an object; null if there is none or this is not an object.
  const Json* find(std::string_view key) const;
  // For error messages: the value as JSON, cut to about 60 bytes.
  std::string show() const;

 private:
  friend class JsonParser;
  Type type_ = Type::Null;
  bool boolean_ = false, exact_ = false;
  double number_ = 0;
  int64_t integer_ = 0;
  std::string string_;
  std::vector<Json> items_;
  std::vector<Member> members_;
};

// Valid UTF-8 as a JSON string.
std::string json_string(std::string_view text);
// For error messages: control characters replaced, as a NUL would end the message, and bytes that are no UTF-8.
std::string printable(std::string text);

struct Json::Member {
  std::string key;
  Json value;
};

}  // namespace swiftk
