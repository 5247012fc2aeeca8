#pragma once

/// \file
/// What checked calls found, as lines of JSON, until Python takes them.

#include <cstdint>
#include <cstdio>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace be_guard {

/// One finding; the fields are those of `be_runtime.Finding`. A note has the kind "note" and a message alone.
struct Finding {
  std::string kind;
  std::string kernel;
  std::string message;
  std::string array;
  std::vector<int64_t> index;
  int64_t count = 0;
  bool certain = true;
  std::string caller;
  std::string device;
  std::vector<std::string> hints;
};

inline void add_text(std::string& out, const std::string& text) {
  out += '"';
  for (const char each : text) {
    const unsigned char code = static_cast<unsigned char>(each);
    char escaped[8];
    if (each == '"' || each == '\\') {
      out += '\\';
      out += each;
    } else if (code < 0x20) {
      snprintf(escaped, sizeof(escaped), "\\u%04x", code);
      out += escaped;
    } else {
      out += each;
    }
  }
  out += '"';
}

inline std::string to_json(const Finding& finding) {
  std::string out = "{";
  const auto field = [&](const char* name, const std::string& text) {
    out += std::string("\"") + name + "\": ";
    add_text(out, text);
    out += ", ";
  };
  field("kind", finding.kind);
  field("kernel", finding.kernel);
  field("message", finding.message);
  field("array", finding.array);
  field("caller", finding.caller);
  field("device", finding.device);
  out += "\"index\": [";
  for (size_t i = 0; i < finding.index.size(); ++i) out += (i ? ", " : "") + std::to_string(finding.index[i]);
  out += "], \"count\": " + std::to_string(finding.count);
  out += std::string(", \"certain\": ") + (finding.certain ? "true" : "false") + ", \"hints\": [";
  for (size_t i = 0; i < finding.hints.size(); ++i) {
    if (i) out += ", ";
    add_text(out, finding.hints[i]);
  }
  return out + "]}";
}

/// The findings that nobody has taken yet, each once.
class FindingQueue {
 public:
  void add(const Finding& finding) {
    std::string line = to_json(finding);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (lines_.size() < kMost && known_.insert(line).second) lines_.push_back(std::move(line));
  }

  /// Moves whole lines into `room`, each with a newline, and returns their bytes; 0 when there are none.
  int64_t take(char* room, int64_t size) {
    const std::lock_guard<std::mutex> lock(mutex_);
    int64_t used = 0;
    while (!lines_.empty() && used + static_cast<int64_t>(lines_.front().size()) < size) {
      const std::string& line = lines_.front();
      line.copy(room + used, line.size());
      used += static_cast<int64_t>(line.size());
      room[used++] = '\n';
      known_.erase(line);
      lines_.pop_front();
    }
    return used;
  }

 private:
  static constexpr size_t kMost = 10000;
  std::mutex mutex_;
  std::deque<std::string> lines_;
  std::unordered_set<std::string> known_;
};

inline FindingQueue& findings() {
  static FindingQueue* const queue = new FindingQueue;  // handlers may run while the process ends
  return *queue;
}

}  // namespace be_guard
