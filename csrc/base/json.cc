// Recursive descent over the text; positions in messages are byte offsets. Depth is bounded, so is the stack.
#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/error.h"

namespace swiftk {

class JsonParser {
 public:
  JsonParser(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  Json document() {
    Json value = parse_value(0);
    skip_space();
    if (at_ != text_.size()) stop("text behind the value");
    return value;
  }

 private:
  [[noreturn]] void stop(const std::string& what) const {
    fail(Status::Checkpoint, where_ + ": not valid JSON at byte " + std::to_string(at_) + ": " + what);
  }

  bool done() const { return at_ == text_.size(); }
  char peek() const { return done() ? '\0' : text_[at_]; }

  void skip_space() {
    while (!done() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
  }

  bool take(char c) {
    if (done() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!take(c)) stop(std::string("want '") + c + "', got " + here());
  }

  std::string here() const {
    if (done()) return "the end of the text";
    const unsigned char c = static_cast<unsigned char>(text_[at_]);
    char name[16];
    std::snprintf(name, sizeof name, c > 32 && c < 127 ? "'%c'" : "byte 0x%02x", c);
    return name;
  }

  Json parse_value(int depth) {
    if (depth > Json::kMaxDepth) stop("nested deeper than " + std::to_string(Json::kMaxDepth));
    skip_space();
    Json out;
    switch (peek()) {
      case '{': parse_object(out, depth); break;
      case '[': parse_array(out, depth); break;
      case '"':
        out.type_ = Json::Type::String;
        out.string_ = parse_string();
        break;
      case 't': parse_word("true", out, Json::Type::Bool, true); break;
      case 'f': parse_word("false", out, Json::Type::Bool, false); break;
      case 'n': parse_word("null", out, Json::Type::Null, false); break;
      default: parse_number(out);
    }
    return out;
  }

  void parse_word(std::string_view word, Json& out, Json::Type type, bool boolean) {
    if (text_.substr(at_, word.size()) != word) stop("want " + std::string(word));
    at_ += word.size();
    out.type_ = type;
    out.boolean_ = boolean;
  }

  void parse_object(Json& out, int depth) {
    out.type_ = Json::Type::Object;
    expect('{');
    skip_space();
    if (take('}')) return;
    do {
      skip_space();
      if (peek() != '"') stop("want a key, got " + here());
      std::string key = parse_string();
      skip_space();
      expect(':');
      out.members_.push_back({std::move(key), parse_value(depth + 1)});
      skip_space();
    } while (take(','));
    expect('}');
    const auto by_key = [](const Json::Member& a, const Json::Member& b) { return a.key < b.key; };
    std::sort(out.members_.begin(), out.members_.end(), by_key);
    const auto twice = std::adjacent_find(out.members_.begin(), out.members_.end(),
                                          [](const Json::Member& a, const Json::Member& b) { return a.key == b.key; });
    if (twice != out.members_.end()) stop("key '" + twice->key + "' twice in one object");
  }

  void parse_array(Json& out, int depth) {
    out.type_ = Json::Type::Array;
    expect('[');
    skip_space();
    if (take(']')) return;
    do {
      out.items_.push_back(parse_value(depth + 1));
      skip_space();
    } while (take(','));
    expect(']');
  }

  size_t take_digits() {
    const size_t begin = at_;
    while (!done() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ - begin;
  }

  void parse_number(Json& out) {
    const size_t begin = at_;
    bool integral = true;
    take('-');
    if (!take('0') && take_digits() == 0) stop("want a value, got " + here());
    if (take('.')) {
      integral = false;
      if (take_digits() == 0) stop("want a digit behind the point, got " + here());
    }
    if (peek() == 'e' || peek() == 'E') {
      integral = false;
      ++at_;
      if (!take('+')) take('-');
      if (take_digits() == 0) stop("want a digit in the exponent, got " + here());
    }
    const char *first = text_.data() + begin, *last = text_.data() + at_;
    out.type_ = Json::Type::Number;
    if (std::from_chars(first, last, out.number_).ec != std::errc()) stop("number out of range");
    out.exact_ = integral && std::from_chars(first, last, out.integer_).ec == std::errc();
  }

  std::string parse_string() {
    expect('"');
    std::string out;
    while (!take('"')) {
      if (done()) stop("string without an end");
      const unsigned char c = static_cast<unsigned char>(text_[at_]);
      if (c < 0x20) stop("control character " + here() + " in a string");
      if (c == '\\') {
        ++at_;
        parse_escape(out);
      } else if (c < 0x80) {
        out += text_[at_++];
      } else {
        copy_utf8(out);
      }
    }
    return out;
  }

  void parse_escape(std::string& out) {
    const char c = peek();
    static constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
    if (const size_t i = kFrom.find(c); i != kFrom.npos && !done()) {
      out += kTo[i];
      ++at_;
      return;
    }
    if (!take('u')) stop("unknown escape " + here());
    uint32_t code = parse_hex4();
    if (code >= 0xdc00 && code < 0xe000) stop("lone low surrogate");
    if (code >= 0xd800 && code < 0xdc00) {
      if (!take('\\') || !take('u')) stop("lone high surrogate");
      const uint32_t low = parse_hex4();
      if (low < 0xdc00 || low >= 0xe000) stop("lone high surrogate");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    append_utf8(out, code);
  }

  uint32_t parse_hex4() {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) stop("want four hexadecimal digits, got " + here());
      code = code << 4 | static_cast<uint32_t>(digit);
    }
    return code;
  }

  static void append_utf8(std::string& out, uint32_t code) {
    const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((code >> shift) & 0x3f)); };
    if (code < 0x80) {
      out += static_cast<char>(code);
    } else if (code < 0x800) {
      out += static_cast<char>(0xc0 | code >> 6);
      tail(0);
    } else if (code < 0x10000) {
      out += static_cast<char>(0xe0 | code >> 12);
      tail(6), tail(0);
    } else {
      out += static_cast<char>(0xf0 | code >> 18);
      tail(12), tail(6), tail(0);
    }
  }

  // One well-formed multi-byte sequence: shortest form, no surrogates, at most U+10FFFF.
  void copy_utf8(std::string& out) {
    const unsigned char lead = static_cast<unsigned char>(text_[at_]);
    const int tails = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    if (lead < 0xc2 || lead > 0xf4 || text_.size() - at_ <= static_cast<size_t>(tails))
      stop("invalid UTF-8, " + here());
    uint32_t code = lead & (0x3f >> tails);
    for (int i = 1; i <= tails; ++i) {
      const unsigned char c = static_cast<unsigned char>(text_[at_ + i]);
      if ((c & 0xc0) != 0x80) stop("invalid UTF-8, " + here());
      code = code << 6 | (c & 0x3fu);
    }
    const uint32_t least = tails == 1 ? 0x80 : tails == 2 ? 0x800 : 0x10000;
    if (code < least || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) stop("invalid UTF-8, " + here());
    out.append(text_.substr(at_, tails + 1));
    at_ += tails + 1;
  }

  std::string_view text_;
  const std::string& where_;
  size_t at_ = 0;
};

Json Json::parse(std::string_view text, const std::string& where) { return JsonParser(text, where).document(); }

const Json* Json::find(std::string_view key) const {
  const auto it = std::lower_bound(members_.begin(), members_.end(), key,
                                   [](const Member& m, std::string_view k) { return m.key < k; });
  return it != members_.end() && it->key == key ? &it->value : nullptr;
}

namespace {

// The bytes of the UTF-8 character at the front of a text; 0: there is none.
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0), second = byte(1);
  const size_t n = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  for (size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool surrogate = first == 0xed && second >= 0xa0, beyond = first == 0xf4 && second >= 0x90;
  return overlong || surrogate || beyond ? 0 : n;
}

}  // namespace

std::string json_string(std::string_view text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20) {
      out += std::string("\\u00") + kDigits[byte / 16] + kDigits[byte % 16];
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string printable(std::string text) {
  for (size_t i = 0; i < text.size();) {
    const size_t n = character_bytes(std::string_view(text).substr(i));
    if (n == 0 || static_cast<unsigned char>(text[i]) < 0x20 || text[i] == 0x7f) text[i] = '?';
    i += n ? n : 1;
  }
  return text;
}

std::string Json::show() const {
  constexpr size_t kCut = 60;
  std::string out;
  switch (type_) {
    case Type::Null: return "null";
    case Type::Bool: return boolean_ ? "true" : "false";
    case Type::Number:
      if (exact_) return std::to_string(integer_);
      char text[40];
      std::snprintf(text, sizeof text, "%.10g", number_);
      return text;
    case Type::String: out = "'" + printable(string_) + "'"; break;
    case Type::Array:
      for (const Json& item : items_) {
        if (out.size() > kCut) break;
        out += (out.empty() ? "" : ", ") + item.show();
      }
      out = "[" + out + "]";
      break;
    case Type::Object:
      for (const Member& m : members_) {
        if (out.size() > kCut) break;
        out += (out.empty() ? "" : ", ") + printable(m.key) + ": " + m.value.show();
      }
      out = "{" + out + "}";
      break;
  }
  if (out.size() <= kCut) return out;
  size_t cut = kCut;  // not inside a character: the message must stay UTF-8
  while (cut > 0 && (static_cast<unsigned char>(out[cut]) & 0xc0) == 0x80) --cut;
  return out.substr(0, cut) + "...";
}

}  // namespace swiftk
