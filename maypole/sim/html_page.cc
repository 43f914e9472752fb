// SPDX-License-Identifier: Apache-2.0
#include "maypole/sim/html_page.h"

#include "maypole/sim/svg_chart.h"

#include <fmt/format.h>

namespace maypole::sim {

namespace {

constexpr const char* kStyle =
    "body{font:15px/1.5 sans-serif;color:#1a1a1a;background:#fff;max-width:70rem;margin:1.5em auto;padding:0 1em}"
    "h1{font-size:clamp(1.25rem,3.5vw,1.75rem);line-height:1.25;overflow-wrap:anywhere}p,li{overflow-wrap:anywhere;max-width:50rem}"
    "table{border-collapse:collapse;font-size:14px}.wide{overflow-x:auto;margin:1em 0}"
    "th,td{padding:.25em .8em;border-bottom:1px solid #ccc;text-align:right;white-space:nowrap}"
    "tbody th,thead th:first-child{text-align:left;position:sticky;left:0;background:#fff}tbody th{font-weight:normal}"
    ".left{text-align:left}svg{max-width:100%;height:auto;margin:1em 0;border:1px solid #ddd}"
    ".wide>svg{display:block;box-sizing:border-box;width:100%;min-width:40rem;max-width:none;margin:0}";

}  // namespace

std::string html_page(std::string_view title, std::string_view body) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><title>{0}</title><style>{1}</style></head><body>\n<h1>{0}</h1>\n{2}</body></html>\n",
      escaped(title), kStyle, body);
}

std::string html_wide(std::string_view html) { return fmt::format("<div class=\"wide\">{}</div>\n", html); }

}  // namespace maypole::sim
