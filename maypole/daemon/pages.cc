// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/pages.h"

#include <fmt/format.h>

namespace maypole::daemon {

namespace {

Response page(int status, std::string_view type, std::string body) {
  Response response{.status = status, .body = std::move(body), .type = std::string(type)};
  response.headers = {{"Content-Security-Policy",
                       "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
                       "form-action 'none'; frame-ancestors 'none'"},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"X-Frame-Options", "DENY"}};
  return response;
}

Response sentence_page(int status, std::string_view head, std::string_view sentence) {
  return page(status, "text/html; charset=utf-8",
              fmt::format("<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">"
                          "<meta name=\"viewport\" content=\"width=device-width\">{}<title>Maypole</title><p>{}</p></html>\n",
                          head, sentence));
}

std::string_view type_of(std::string_view path) {
  return path.ends_with(".js")    ? "text/javascript; charset=utf-8"
         : path.ends_with(".css") ? "text/css; charset=utf-8"
         : path.ends_with(".svg") ? "image/svg+xml"
                                  : "text/html; charset=utf-8";
}

}  // namespace

std::optional<Response> dashboard_page(const std::string& path, bool logged_in) {
  const DashboardFile* file = dashboard_file(path == "/" ? "/index.html" : path);
  if (file == nullptr) {
    return std::nullopt;
  }
  if (!logged_in) {
    return sentence_page(401, "", "To look at this daemon, run <code>maypole dashboard</code> and open the link that it prints.");
  }
  return page(200, type_of(file->path), std::string(file->bytes));
}

Response login_page(const std::string& session) {
  if (session.empty()) {
    return sentence_page(401, "", "This link was used before, or is too old: <code>maypole dashboard</code> prints a new one.");
  }
  // A page that leads on, not a redirect: where the link was opened from another site, a redirect would not carry the cookie along.
  Response response = sentence_page(200, "<meta http-equiv=\"refresh\" content=\"0;url=/\">", "Logged in: <a href=\"/\">the dashboard</a>");
  response.session = session;
  return response;
}

std::string login_path(const std::string& key) { return "/login?key=" + key; }

}  // namespace maypole::daemon
