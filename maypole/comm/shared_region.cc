// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/shared_region.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace maypole::comm {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kSegmentsPerSlab = 16;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

absl::StatusOr<std::shared_ptr<SharedRegion>> SharedRegion::create(std::size_t bytes, std::uint32_t id, bool shared) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t mapped = round_up(std::max<std::size_t>(bytes, 1), bytes >= kHugePage && !shared ? kHugePage : page);
  base::Fd fd;
  if (shared) {
    fd = base::Fd(::memfd_create("maypole", MFD_CLOEXEC));
    if (!fd.valid() || ::ftruncate(fd.get(), static_cast<off_t>(mapped)) != 0) {
      return base::errno_error(errno, "cannot make {} bytes of shared memory", mapped);
    }
  }
  void* mapping = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd.get(), 0);
  if (mapping == MAP_FAILED) {
    return base::errno_error(errno, "cannot map {} bytes of memory", mapped);
  }
  if (!shared) {
    ::madvise(mapping, mapped, MADV_HUGEPAGE);  // only a hint
  }
  return std::shared_ptr<SharedRegion>(new SharedRegion(id, std::move(fd), mapping, mapped, bytes));
}

SharedRegion::SharedRegion(std::uint32_t id, base::Fd fd, void* mapping, std::size_t mapped, std::size_t bytes)
    : id_(id), fd_(std::move(fd)), mapping_(mapping), mapped_(mapped), bytes_(static_cast<std::byte*>(mapping), bytes) {}

SharedRegion::~SharedRegion() {
  if (on_gone_) {
    on_gone_(id_);
  }
  ::munmap(mapping_, mapped_);
}

absl::StatusOr<PeerRegion> PeerRegion::map(base::Fd fd) {
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) {
    return base::errno_error(errno, "cannot look at a peer's shared memory");
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  void* mapping = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (mapping == MAP_FAILED) {
    return base::errno_error(errno, "cannot map {} bytes of a peer's shared memory", size);
  }
  return PeerRegion({static_cast<const std::byte*>(mapping), size});
}

PeerRegion::PeerRegion(PeerRegion&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

PeerRegion::~PeerRegion() {
  if (!bytes_.empty()) {
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
}

void RegionTable::add(const SharedRegion& region) {
  const base::MutexLock lock(mutex_);
  by_address_[region.bytes().data()] = {region.bytes().size(), region.id(), region.fd()};
}

void RegionTable::remove(std::uint32_t id) {
  const base::MutexLock lock(mutex_);
  std::erase_if(by_address_, [id](const auto& entry) { return entry.second.id == id; });
}

void RegionTable::make_private() {
  for (const auto& [begin, entry] : by_address_) {
    if (entry.fd >= 0) {
      // The pages stay as they are until somebody writes them.
      (void)::mmap(const_cast<std::byte*>(begin), entry.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, entry.fd, 0);
    }
  }
}

std::optional<RegionTable::Place> RegionTable::find(const std::byte* data, std::size_t bytes) const {
  const base::MutexLock lock(mutex_);
  auto after = by_address_.upper_bound(data);
  if (after == by_address_.begin()) {
    return std::nullopt;
  }
  const auto& [begin, entry] = *std::prev(after);
  if (data + bytes > begin + entry.size) {
    return std::nullopt;
  }
  return Place{entry.id, static_cast<std::uint64_t>(data - begin)};
}

std::byte* SegmentPool::acquire() {
  if (free_.empty()) {
    auto slab = new_region_(segment_bytes_ * kSegmentsPerSlab);
    if (!slab.ok()) {  // the communicator fails with this, a little later: what is under way still writes somewhere
      failure_.Update(slab.status());
      slab = SharedRegion::create(segment_bytes_ * kSegmentsPerSlab, 0, false);
    }
    if (!slab.ok()) {
      base::check_failed(__FILE__, __LINE__, "memory for segments", base::message(slab.status()));
    }
    for (std::size_t i = kSegmentsPerSlab; i-- > 0;) {
      free_.push_back((*slab)->bytes().data() + i * segment_bytes_);
    }
    total_ += kSegmentsPerSlab;
    slabs_.push_back(*std::move(slab));
  }
  std::byte* buffer = free_.back();
  free_.pop_back();
  return buffer;
}

}  // namespace maypole::comm
