// What takes a C++ compiler some seconds: regular expressions.
#include <regex>
#include <string>

#include "brainevent/common.h"

// @BE count_matches arg ret
void count_matches(const BE::Tensor lengths, BE::Tensor out) {
  const std::regex pattern("(a|b)+c?");
  const float* x = lengths.data_ptr<float>();
  float* y = out.data_ptr<float>();
  const int64_t n = lengths.numel();
  for (int64_t i = 0; i < n; ++i) y[i] = std::regex_match(std::string(static_cast<std::size_t>(x[i]), 'a'), pattern);
}
