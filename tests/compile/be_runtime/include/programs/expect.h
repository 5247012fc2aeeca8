#pragma once
// The tests' only tool: a program that ends with status 0 held all its expectations.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "brainevent/detail/access_error.h"

#define EXPECT(...) \
  ((__VA_ARGS__) ? (void)0 : (printf("%s:%d: expected %s\n", __FILE__, __LINE__, #__VA_ARGS__), exit(1)))

#define EXPECT_TEXT(actual, expected) expect_text(actual, expected, __FILE__, __LINE__)

inline void expect_text(const char* actual, const char* expected, const char* file, int line) {
  if (strcmp(actual, expected) == 0) return;
  printf("%s:%d: expected\n  %s\ngot\n  %s\n", file, line, expected, actual);
  exit(1);
}

// The error that `action` throws; a program whose action throws nothing, or another type, fails.
template <class Error, class Action>
Error thrown_by(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  } catch (...) {
    puts("expected another type of error");
    exit(1);
  }
  puts("expected an error");
  exit(1);
}

// What BE_CHECK prints of a value.
#define EXPECT_PRINTED(value, expected) \
  EXPECT_TEXT(after_colon(thrown_by<BE::CheckError>([&] { BE_CHECK(false) << value; }).what()), expected)

inline const char* after_colon(const char* text) {
  const char* const found = strstr(text, "check failed: false: ");
  return found == nullptr ? text : found + strlen("check failed: false: ");
}

#define EXPECT_THROWS(value, text) EXPECT_TEXT(thrown_by<BE::CheckError>([&] { (void)(value); }).what(), text)
