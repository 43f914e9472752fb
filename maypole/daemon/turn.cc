// SPDX-License-Identifier: Apache-2.0
#include "maypole/base/status.h"
#include "maypole/daemon/daemon.h"

#include <utility>

namespace maypole::daemon {

void Turn::carry_out(const Action& action) {
  if (const auto* order = std::get_if<EpochOrder>(&action)) {
    executor_->start(*order);
  } else if (const auto* adopt = std::get_if<AdoptEpoch>(&action)) {
    executor_->adopt(adopt->id, adopt->num_workers, adopt->elastic);
  } else if (const auto* resize = std::get_if<ResizeEpoch>(&action)) {
    executor_->resize(resize->id, resize->order);
  } else {
    executor_->stop(std::get<StopEpoch>(action).id);
  }
}

void Turn::run(std::vector<Letter> letters, double now_s) {
  supervisor_->advance(now_s);
  for (const WorkerEvent& event : executor_->poll()) {
    supervisor_->on_worker(event, now_s);
  }
  std::vector<Reply> replies;
  std::vector<JobRow> added;
  for (const Letter& letter : letters) {
    replies.push_back(api_->handle(letter.request, now_s));
    if (replies.back().added) {
      added.push_back(*replies.back().added);
    }
  }
  supervisor_->advance(now_s);

  const std::vector<JobRow> changes = supervisor_->take_changes();
  std::vector<JobRow> rows = changes;
  rows.insert(rows.end(), added.begin(), added.end());
  absl::Status status = rows.empty() ? status_ : store_->commit(rows);
  bool kept = status.ok();
  if (!status.ok() && !added.empty() && !changes.empty()) {
    kept = store_->commit(changes).ok();  // what happened goes before what is asked
  }
  if (kept || changes.empty()) {
    status_ = absl::OkStatus();
  } else {
    supervisor_->keep_changes(changes);
    status_ = status;
  }
  if (status.ok()) {
    for (const JobRow& row : added) {
      supervisor_->add(row);
    }
  }
  EventFeed& feed = api_->feed();
  feed.tell(supervisor_->take_decisions());
  if (status_.ok()) {
    feed.tell(changes, now_s);
  }
  if (status.ok()) {
    feed.tell(added, now_s);
  }
  feed.advance(now_s);
  std::vector<Action> actions = supervisor_->take_actions();
  waiting_.insert(waiting_.end(), std::make_move_iterator(actions.begin()), std::make_move_iterator(actions.end()));
  if (status_.ok()) {
    for (const Action& action : std::exchange(waiting_, {})) {
      carry_out(action);
    }
  }
  for (std::size_t i = 0; i < letters.size(); ++i) {
    const bool lost = replies[i].added ? !status.ok() : replies[i].after_commit && !status_.ok();
    if (lost) {
      const bool full = status.code() == absl::StatusCode::kResourceExhausted;
      replies[i].response = error_response(
          full ? 507 : 500,
          fmt::format("{}{}", replies[i].added ? "nothing was kept: " : "it is done once there is room for it: ", base::message(status)));
    }
    letters[i].answer.set_value(std::move(replies[i].response));
  }
}

}  // namespace maypole::daemon
