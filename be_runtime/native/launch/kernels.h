/// \file
/// The kernels of the process by their id, and where each is loaded.

#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver.h"

namespace be_launch {

constexpr int kMaxDevices = 64;
constexpr int kForms = 2;
constexpr size_t kIdSize = 32;

struct Image {
  int arch;
  bool is_ptx;
  bool is_exact;
  int form;
  std::string entry;
  std::string data;
};

/// A kernel on one device.
struct Loaded {
  Function function = nullptr;
  const Image* image = nullptr;  ///< One of its kernel's.
  int max_threads = 0;
  unsigned static_shared = 0;
  unsigned shared_limit = 0;                              ///< Static and dynamic together.
  std::atomic<unsigned> dynamic_shared{kDefaultDynamicShared};  ///< How much a launch may ask for as things are set.
};

struct Kernel {
  char id[kIdSize];
  std::string name;
  std::vector<Image> images;
  std::mutex lock;  ///< Held while a device is added.
  std::atomic<Loaded*> loaded[kForms][kMaxDevices] = {};

  bool has(int form) const {
    for (const Image& image : images)
      if (image.form == form) return true;
    return false;
  }
};

/// All kernels by their id. Reading takes no lock: entries are only added, and a table that grew stays where it is.
class Kernels {
 public:
  Kernel* find(const char* id) const {
    const Table* table = table_.load(std::memory_order_acquire);
    if (table == nullptr) return nullptr;
    for (size_t i = hash(id);; ++i) {
      Kernel* kernel = table->slots[i & table->mask].load(std::memory_order_acquire);
      if (kernel == nullptr || memcmp(kernel->id, id, kIdSize) == 0) return kernel;
    }
  }

  void add(std::unique_ptr<Kernel> kernel) {
    const std::lock_guard<std::mutex> guard(lock_);
    if (find(kernel->id) != nullptr) return;
    Table* table = table_.load(std::memory_order_relaxed);
    if (table == nullptr || count_ * 2 >= table->slots.size()) table = grow(table);
    insert(table, kernel.release());
    ++count_;
  }

 private:
  struct Table {
    explicit Table(size_t size) : mask(size - 1), slots(size) {}
    size_t mask;
    std::vector<std::atomic<Kernel*>> slots;
  };

  static size_t hash(const char* id) {
    size_t value;
    memcpy(&value, id, sizeof(value));
    return value * 0x9E3779B97F4A7C15u >> 20;
  }

  static void insert(Table* table, Kernel* kernel) {
    size_t i = hash(kernel->id);
    while (table->slots[i & table->mask].load(std::memory_order_relaxed) != nullptr) ++i;
    table->slots[i & table->mask].store(kernel, std::memory_order_release);
  }

  Table* grow(const Table* old) {
    Table* table = new Table(old == nullptr ? 64 : old->slots.size() * 2);
    if (old != nullptr)
      for (const auto& slot : old->slots)
        if (Kernel* kernel = slot.load(std::memory_order_relaxed)) insert(table, kernel);
    table_.store(table, std::memory_order_release);
    return table;
  }

  std::mutex lock_;
  size_t count_ = 0;
  std::atomic<Table*> table_{nullptr};
};

inline Kernels& kernels() {
  static Kernels* const all = new Kernels;
  return *all;
}

}  // namespace be_launch
