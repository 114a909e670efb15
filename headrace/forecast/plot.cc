// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <string_view>

#include "headrace/forecast/calendar_internal.h"

namespace headrace::forecast {
namespace {

constexpr std::string_view kHistoryColour = "#6b7685";
constexpr std::string_view kActualColour = "#1b2430";
constexpr std::string_view kForecastColour = "#2463d6";
constexpr double kBandOpacity = 0.16;
constexpr double kConstantSpan = 1e-12;  // of the values' size; less is drawn as a constant
constexpr double kBandShare = 0.6;       // of the data's span that bands may add a side

/// Pixels of the drawing area and the values at its edges.
struct Frame {
  double left, right, top, bottom;
  double first, last;  // steps
  double low, high;    // values

  double x(double step) const {
    return left + (step - first) / std::max(1.0, last - first) * (right - left);
  }
  double y(double value) const { return bottom - (value - low) / (high - low) * (bottom - top); }
};

/// Lowest and highest of the finite numbers; empty until one was seen.
struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void add(const std::vector<double>& values) {
    for (const double value : values) {
      if (std::isfinite(value)) {
        low = std::min(low, value);
        high = std::max(high, value);
      }
    }
  }
  bool empty() const { return low > high; }
};

Result<Range> value_range(const PlotData& data) {
  Range shown;
  shown.add(data.history);
  shown.add(data.actual);
  shown.add(data.median);
  if (shown.empty()) {
    return Error{Errc::invalid_argument,
                 fmt::format("forecast: plot of \"{}\": there is no value to draw", data.title)};
  }
  Range bands = shown;
  for (const PlotBand& band : data.bands) {
    bands.add(band.low);
    bands.add(band.high);
  }
  const double size = std::max(std::abs(shown.low), std::abs(shown.high));
  double span = shown.high - shown.low;
  if (span <= kConstantSpan * size) {  // rounding, not a curve
    span = size > 0.0 ? size : 1.0;
  }
  Range out{std::max(bands.low, shown.low - kBandShare * span),
            std::min(bands.high, shown.high + kBandShare * span)};
  const double drawn = out.high - out.low;
  const double margin = 0.03 * (drawn > kConstantSpan * size ? drawn : span);
  out.low -= margin;
  out.high += margin;
  return out;
}

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default:
        // Control characters have no form in XML 1.0.
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

std::vector<double> round_ticks(double low, double high, double count) {
  const double raw = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  double step = 10.0 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw * 0.999) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  const double first = std::ceil(low / step);
  const int ticks_max = static_cast<int>(count) + 2;
  for (int k = 0; k < ticks_max && (first + k) * step <= high; ++k) {
    ticks.push_back((first + k) * step + 0.0);  // + 0.0: no "-0"
  }
  return ticks;
}

std::string tick_text(double value) {
  if (value == 0.0) {
    return "0";
  }
  const double size = std::abs(value);
  return size >= 1e7 || size < 1e-4 ? fmt::format("{:.3g}", value) : fmt::format("{:.7g}", value);
}

constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                      "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

/// Ticks stand a round time apart: `unit_us`, or `months` where that is not 0.
struct TickRule {
  int64_t unit_us = 0;
  int64_t months = 0;
};

/// The shortest rule that gives at most `count` ticks in `span_us`.
TickRule tick_rule(const Frequency& frequency, int64_t span_us, double count) {
  using calendar::kDay, calendar::kHour, calendar::kMinute, calendar::kSecond;
  constexpr std::array<int64_t, 17> kUnits = {
      kSecond,      5 * kSecond,  15 * kSecond, 30 * kSecond, kMinute,   5 * kMinute,
      15 * kMinute, 30 * kMinute, kHour,        3 * kHour,    6 * kHour, 12 * kHour,
      kDay,         2 * kDay,     4 * kDay,     7 * kDay,     14 * kDay};
  const auto span = static_cast<double>(span_us);
  if (frequency.unit < TimeUnit::month) {
    for (const int64_t unit : kUnits) {
      if (span / static_cast<double>(unit) <= count) {
        return {unit, 0};
      }
    }
  }
  constexpr std::array<int64_t, 6> kMonthCounts = {1, 3, 6, 12, 24, 60};
  const double months = span / (30.44 * static_cast<double>(kDay));
  for (const int64_t one : kMonthCounts) {
    if (months / static_cast<double>(one) <= count) {
      return {0, one};
    }
  }
  return {0, 120 * static_cast<int64_t>(std::ceil(months / 120.0 / count))};
}

/// Number of the stretch between two ticks that a stamp lies in.
int64_t stretch(const TickRule& rule, int64_t stamp_us) {
  if (rule.months > 0) {
    const calendar::Date date = calendar::date_of_day(calendar::day_of(stamp_us));
    return calendar::floor_div(calendar::month_number(date), rule.months);
  }
  // Weeks start on Mondays; the epoch was a Thursday.
  const int64_t offset = rule.unit_us % (7 * calendar::kDay) == 0 ? 4 * calendar::kDay : 0;
  return calendar::floor_div(stamp_us - offset, rule.unit_us);
}

std::string tick_label(const TickRule& rule, int64_t stamp_us) {
  const calendar::Date date = calendar::date_of_day(calendar::day_of(stamp_us));
  const std::string_view month = kMonths[static_cast<size_t>(date.month - 1)];
  if (rule.months > 0) {
    return rule.months >= 12 ? std::to_string(date.year) : fmt::format("{} {}", month, date.year);
  }
  const int64_t second = calendar::floor_mod(stamp_us, calendar::kDay) / calendar::kSecond;
  if (rule.unit_us >= calendar::kDay || second == 0) {
    return fmt::format("{} {}", date.day, month);
  }
  std::string text = fmt::format("{:02}:{:02}", second / 3600, second / 60 % 60);
  return rule.unit_us < calendar::kMinute ? fmt::format("{}:{:02}", text, second % 60) : text;
}

/// A tick at the first step of each stretch.
void put_time_axis(const PlotData& data, const Frame& frame, std::string* svg) {
  const auto stamp = [&data](int64_t step) {
    return add_steps(data.frequency, data.start_us, step);
  };
  const auto last = static_cast<int64_t>(frame.last);
  const TickRule rule =
      tick_rule(data.frequency, stamp(last) - stamp(0), (frame.right - frame.left) / 85.0);
  int64_t before = stretch(rule, stamp(-1));
  for (int64_t step = 0; step <= last; ++step) {
    const int64_t here = stretch(rule, stamp(step));
    if (here != before) {
      fmt::format_to(std::back_inserter(*svg),
                     "<path class=\"g\" d=\"M{0:.1f},{1:.1f}v4\"/>"
                     "<text x=\"{0:.1f}\" y=\"{2:.1f}\" text-anchor=\"middle\">{3}</text>\n",
                     frame.x(static_cast<double>(step)), frame.bottom, frame.bottom + 18,
                     tick_label(rule, stamp(step)));
    }
    before = here;
  }
}

void put_value_axis(const Frame& frame, std::string* svg) {
  const double count = std::max(2.0, (frame.bottom - frame.top) / 55.0);
  for (const double tick : round_ticks(frame.low, frame.high, count)) {
    fmt::format_to(std::back_inserter(*svg),
                   "<path class=\"g\" d=\"M{0:.1f},{1:.1f}H{2:.1f}\"/>"
                   "<text x=\"{3:.1f}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
                   frame.left, frame.y(tick), frame.right, frame.left - 7, frame.y(tick) + 4,
                   tick_text(tick));
  }
}

/// A line through the finite values; gaps stay gaps.
void put_line(const std::vector<double>& values, double offset, const Frame& frame,
              std::string_view colour, double width, std::string* svg) {
  std::string path;
  char pen = 'M';
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      pen = 'M';
      continue;
    }
    fmt::format_to(std::back_inserter(path), "{}{:.1f},{:.1f}", pen,
                   frame.x(offset + static_cast<double>(i)), frame.y(values[i]));
    pen = 'L';
  }
  if (!path.empty()) {
    fmt::format_to(std::back_inserter(*svg),
                   "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" "
                   "stroke-linejoin=\"round\"/>\n",
                   path, colour, width);
  }
}

void put_band(const PlotBand& band, double offset, const Frame& frame, std::string* svg) {
  std::string there;
  std::string back;
  for (size_t i = 0; i < band.low.size(); ++i) {
    if (std::isfinite(band.low[i]) && std::isfinite(band.high[i])) {
      const double x = frame.x(offset + static_cast<double>(i));
      there += fmt::format("{}{:.1f},{:.1f}", there.empty() ? "M" : "L", x, frame.y(band.high[i]));
      back.insert(0, fmt::format("L{:.1f},{:.1f}", x, frame.y(band.low[i])));
    }
  }
  if (!there.empty()) {
    fmt::format_to(
        std::back_inserter(*svg),
        "<path d=\"{}{}Z\" fill=\"{}\" fill-opacity=\"{}\"><title>{:g} %</title></path>\n", there,
        back, kForecastColour, kBandOpacity, band.percent);
  }
}

/// Title at the left, legend at the right of the line above the plot.
void put_head(const PlotData& data, const Frame& frame, std::string* svg) {
  fmt::format_to(std::back_inserter(*svg), "<text class=\"t\" x=\"{}\" y=\"20\">{}</text>\n",
                 frame.left, escape(data.title));
  double x = frame.right;
  const auto entry = [&x, svg](const std::string& text, std::string_view colour, double opacity) {
    x -= 6.6 * static_cast<double>(text.size());
    fmt::format_to(std::back_inserter(*svg), "<text x=\"{:.1f}\" y=\"20\">{}</text>", x, text);
    const bool fill = opacity < 1.0;
    fmt::format_to(std::back_inserter(*svg),
                   "<rect x=\"{:.1f}\" y=\"{}\" width=\"16\" height=\"{}\" fill=\"{}\" "
                   "fill-opacity=\"{:.2f}\"/>\n",
                   x - 22, fill ? 10 : 15, fill ? 11 : 2, colour, opacity);
    x -= 36;
  };
  // Bands lie on one another: the narrowest is under all of them.
  for (size_t i = 0; i < data.bands.size(); ++i) {
    entry(fmt::format("{:g} %", data.bands[i].percent), kForecastColour,
          1.0 - std::pow(1.0 - kBandOpacity, static_cast<double>(i + 1)));
  }
  entry("median", kForecastColour, 1.0);
  if (!data.actual.empty()) {
    entry("actual", kActualColour, 1.0);
  }
  entry("history", kHistoryColour, 1.0);
}

Result<void> check(const PlotData& data, const PlotOptions& options) {
  if (options.width < 200 || options.height < 120) {
    return Error{Errc::invalid_argument,
                 fmt::format("forecast: plot: {} by {} is too small; 200 by 120 is the least",
                             options.width, options.height)};
  }
  const size_t horizon = data.median.size();
  if (data.overlap < 0 || data.overlap > std::ssize(data.history) ||
      data.overlap > std::ssize(data.median)) {
    return Error{Errc::invalid_argument,
                 fmt::format("forecast: plot of \"{}\": an overlap of {} values of {} with a "
                             "horizon of {}",
                             data.title, data.overlap, data.history.size(), horizon)};
  }
  const auto complain = [&data, horizon](std::string_view what, size_t count) {
    return Error{Errc::invalid_argument,
                 fmt::format("forecast: plot of \"{}\": {} {} values for a horizon of {}",
                             data.title, count, what, horizon)};
  };
  if (!data.actual.empty() && data.actual.size() != horizon) {
    return complain("actual", data.actual.size());
  }
  for (const PlotBand& band : data.bands) {
    if (band.low.size() != horizon || band.high.size() != horizon) {
      return complain(fmt::format("{:g} % band", band.percent),
                      std::min(band.low.size(), band.high.size()));
    }
  }
  return {};
}

/// "2015-07-01 00:00:00 to 2015-07-02 11:00:00".
std::string range_text(const Frequency& frequency, int64_t start_us, int64_t steps) {
  return stamp_text(start_us) + " to " + stamp_text(add_steps(frequency, start_us, steps - 1));
}

/// The step of the series that the forecast begins at: within it, or right behind its last.
Result<int64_t> place_of(const Series& series, const Forecast& forecast) {
  const auto step = steps_between(series.frequency, series.start_us, forecast.start_us);
  if (step && *step <= series.length() && *step + forecast.horizon > 0) {
    return *step;
  }
  return Error{
      Errc::invalid_argument,
      fmt::format("forecast: plot of \"{}\": the forecast is of {}, and the history holds {}: {}; "
                  "name the table that the forecast was made from",
                  series.id, range_text(forecast.frequency, forecast.start_us, forecast.horizon),
                  range_text(series.frequency, series.start_us, series.length()),
                  step ? "they neither touch nor overlap"
                       : "the forecast's stamps are none of the history's steps of " +
                             series.frequency.name())};
}

/// Of the series what lies before step `place` and, as far as it goes, in the forecast's range.
void take_history(const Series& series, int64_t place, int64_t horizon, int64_t wanted,
                  PlotData* data) {
  const int64_t first = std::min(std::max<int64_t>(0, place - wanted), place);
  const int64_t last = std::min(series.length(), place + horizon);
  data->start_us = series.stamp(first);
  for (int64_t step = first; step < last; ++step) {  // a history may begin after its forecast
    data->history.push_back(step < 0 ? std::numeric_limits<double>::quiet_NaN()
                                     : series.target[static_cast<size_t>(step)]);
  }
  data->overlap = last - place;
}

}  // namespace

Result<PlotData> plot_data(const Series& series, const Forecast& forecast, int64_t history_steps,
                           std::vector<double> actual) {
  const std::vector<double>& levels = forecast.levels;
  const auto at = [&levels](double level) {
    return std::find_if(levels.begin(), levels.end(),
                        [level](double one) { return std::abs(one - level) < 1e-9; });
  };
  if (at(0.5) == levels.end()) {
    return Error{Errc::invalid_argument,
                 fmt::format("forecast: plot of \"{}\": the forecast has no median; ask for the "
                             "quantile 0.5",
                             series.id)};
  }
  const auto values = [&forecast, &levels](std::vector<double>::const_iterator level) {
    const auto row = forecast.quantiles.begin() + (level - levels.begin()) * forecast.horizon;
    return std::vector<double>(row, row + forecast.horizon);
  };
  PlotData data;
  data.title = series.id;
  data.frequency = series.frequency;
  const int64_t wanted = history_steps > 0 ? history_steps : int64_t{4} * forecast.horizon;
  HR_TRY(const int64_t place, place_of(series, forecast));
  take_history(series, place, forecast.horizon, wanted, &data);
  data.actual = std::move(actual);
  data.median = values(at(0.5));
  const auto is_usual = [](const PlotBand& band) {
    return std::ranges::find(kPlotPercents, band.percent) != std::end(kPlotPercents);
  };
  for (auto level = levels.begin(); level != levels.end(); ++level) {
    const auto upper = at(1.0 - *level);
    if (*level < 0.5 && upper != levels.end()) {
      const double percent = std::round(1000.0 * (1.0 - 2.0 * *level)) / 10.0;
      data.bands.push_back({percent, values(level), values(upper)});
    }
  }
  if (std::ranges::any_of(data.bands, is_usual)) {
    std::erase_if(data.bands, [&](const PlotBand& band) { return !is_usual(band); });
  }
  return data;
}

Result<std::string> forecast_svg(const PlotData& data, const PlotOptions& options) {
  HR_TRY(check(data, options));
  HR_TRY(const Range range, value_range(data));
  PlotData sorted = data;
  std::stable_sort(sorted.bands.begin(), sorted.bands.end(),
                   [](const PlotBand& a, const PlotBand& b) { return a.percent > b.percent; });
  const size_t before = data.history.size() - static_cast<size_t>(data.overlap);
  const auto past = static_cast<double>(before);
  const Frame frame{64.0,      options.width - 14.0,
                    34.0,      options.height - 30.0,
                    0.0,       past + static_cast<double>(data.median.size()) - 1.0,
                    range.low, range.high};
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" role=\"img\">\n<title>Forecast of {2}</title>\n"
      "<style>text{{font:12px system-ui,\"DejaVu Sans\",sans-serif;fill:#5a6675}}"
      ".t{{font-size:15px;font-weight:600;fill:#1b2430}}"
      ".g{{stroke:#dfe3e8;fill:none;shape-rendering:crispEdges}}</style>\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n"
      "<clipPath id=\"area\"><rect x=\"{3}\" y=\"{4}\" width=\"{5}\" height=\"{6}\"/></clipPath>\n",
      options.width, options.height, escape(data.title), frame.left, frame.top,
      frame.right - frame.left, frame.bottom - frame.top);
  put_head(sorted, frame, &svg);
  put_value_axis(frame, &svg);
  put_time_axis(sorted, frame, &svg);
  svg += "<g clip-path=\"url(#area)\">\n";
  for (const PlotBand& band : sorted.bands) {
    put_band(band, past, frame, &svg);
  }
  fmt::format_to(
      std::back_inserter(svg),
      "<path d=\"M{:.1f},{:.1f}V{:.1f}\" stroke=\"#5a6675\" stroke-dasharray=\"3 3\"/>\n",
      frame.x(past - 0.5), frame.top, frame.bottom);
  put_line(sorted.history, 0.0, frame, kHistoryColour, 1.3, &svg);
  put_line(sorted.median, past, frame, kForecastColour, 2.0, &svg);
  std::vector<double> joined = sorted.actual;
  if (!joined.empty() && before > 0) {
    joined.insert(joined.begin(), sorted.history[before - 1]);
    put_line(joined, past - 1.0, frame, kActualColour, 1.4, &svg);
  } else {
    put_line(joined, past, frame, kActualColour, 1.4, &svg);
  }
  svg += "</g>\n</svg>\n";
  return svg;
}

}  // namespace headrace::forecast
