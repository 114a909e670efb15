// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/plot.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace headrace::forecast {
namespace {

constexpr int64_t kHourUs = 3'600'000'000;
constexpr int64_t kFirstOfJuly2015 = 1'435'708'800'000'000;  // date -u -d 2015-07-01 +%s

size_t occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

Series sine_series(int64_t length) {
  Series series;
  series.id = "H1";
  series.start_us = kFirstOfJuly2015;
  for (int64_t t = 0; t < length; ++t) {
    series.target.push_back(100.0 + 20.0 * std::sin(0.2618 * static_cast<double>(t)));
  }
  return series;
}

Forecast flat_forecast(const Series& series) {
  Forecast forecast;
  forecast.id = series.id;
  forecast.start_us = series.stamp(series.length());
  forecast.horizon = 24;
  forecast.levels = {0.025, 0.1, 0.25, 0.3, 0.5, 0.75, 0.9, 0.975};
  for (const double level : forecast.levels) {
    for (int k = 0; k < 24; ++k) {
      forecast.quantiles.push_back(100.0 + 40.0 * (level - 0.5));
    }
  }
  return forecast;
}

TEST_CASE("a plot has history, median and its bands of 95, 80 and 50 %, else what it has") {
  const Series series = sine_series(200);

  const PlotData data = plot_data(series, flat_forecast(series)).value();
  const std::string svg = forecast_svg(data).value();

  CHECK(data.history.size() == 96);  // four horizons of 24
  CHECK(data.start_us == kFirstOfJuly2015 + 104 * kHourUs);
  REQUIRE(data.bands.size() == 3);  // 0.3 has no partner
  CHECK(data.bands[0].percent == 95.0);
  CHECK(data.bands[1].percent == 80.0);
  CHECK(data.bands[2].percent == 50.0);
  CHECK(data.bands[1].high[7] == doctest::Approx(116.0));  // 100 + 40 * 0.4
  Forecast more = flat_forecast(series);
  more.levels[3] = 0.3;
  more.levels[5] = 0.7;
  const PlotData usual = plot_data(series, more).value();
  REQUIRE(usual.bands.size() == 2);  // 40 % is none of those drawn beside others
  CHECK(usual.bands[1].percent == 80.0);
  more.levels = {0.05, 0.15, 0.2, 0.3, 0.5, 0.7, 0.8, 0.95};
  CHECK(plot_data(series, more).value().bands.size() == 3);  // 90, 60 and 40 %: what there is
  CHECK(occurrences(svg, "fill-opacity=\"0.16\"><title>") == 3);
  CHECK(occurrences(svg, ">95 %</title>") == 1);
  CHECK(svg.find("4 Jul 2015") == std::string::npos);
  CHECK(svg.find(">6 Jul<") != std::string::npos);  // 104 h after 1 July 00:00 is 5 July 08:00
  CHECK(svg.starts_with("<svg "));
  CHECK(svg.ends_with("</svg>\n"));
}

TEST_CASE("a forecast is drawn at its stamps, whatever the history has grown to or lacks") {
  const Series series = sine_series(200);
  const Forecast forecast = flat_forecast(series);  // steps 200 to 223
  const auto at = [&](int64_t first, int64_t last) {
    Series other = sine_series(last);
    other.target.erase(other.target.begin(), other.target.begin() + first);
    other.start_us = series.stamp(first);
    return plot_data(other, forecast);
  };

  for (const int64_t length : {200, 201, 224, 400}) {
    CAPTURE(length);
    const PlotData data = at(0, length).value();
    CHECK(data.start_us == series.stamp(104));
    CHECK(data.overlap == std::min<int64_t>(length, 224) - 200);
    CHECK(std::ssize(data.history) == 96 + data.overlap);
    CHECK(data.history[50] == series.target[154]);
    CHECK(forecast_svg(data).ok());
  }
  const PlotData late = at(210, 230).value();  // the history begins in the forecast's range
  CHECK(late.start_us == series.stamp(200));
  CHECK(late.overlap == 24);
  CHECK(std::isnan(late.history[9]));
  CHECK_FALSE(std::isnan(late.history[10]));
  CHECK(forecast_svg(late).ok());

  CHECK(at(0, 199).error().message() ==
        "forecast: plot of \"H1\": the forecast is of 2015-07-09 08:00:00 to 2015-07-10 07:00:00, "
        "and the history holds 2015-07-01 00:00:00 to 2015-07-09 06:00:00: they neither touch nor "
        "overlap; name the table that the forecast was made from");
  CHECK_FALSE(at(224, 300).ok());
  Forecast between = forecast;
  between.start_us += 1;
  CHECK(plot_data(series, between).error().message().find("none of the history's steps of h") !=
        std::string::npos);
}

TEST_CASE("a title cannot break out of the document") {
  const Series series = sine_series(60);
  PlotData data = plot_data(series, flat_forecast(series)).value();
  data.title = "<script>\"a\" & \x01";

  const std::string svg = forecast_svg(data).value();

  CHECK(svg.find("<script>") == std::string::npos);
  CHECK(svg.find("&lt;script&gt;&quot;a&quot; &amp;  <") != std::string::npos);
}

TEST_CASE("missing values leave gaps and wild bands do not flatten the plot") {
  PlotData data;
  data.title = "gaps";
  data.start_us = kFirstOfJuly2015;
  data.history = {1.0, 2.0, std::nan(""), 2.0, 1.0};
  data.median = {1.0, 2.0};
  data.bands.push_back({95.0, {-1e9, -1e9}, {1e9, std::numeric_limits<double>::infinity()}});

  const std::string svg = forecast_svg(data).value();

  // The history's span is 1, so the axis ends at 2 + 0.6 and a margin: no tick beyond 3.
  CHECK(svg.find(">2.5<") != std::string::npos);
  CHECK(svg.find(">10<") == std::string::npos);
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(svg.find("inf") == std::string::npos);
}

TEST_CASE("a constant series, monthly stamps and a single value can be drawn") {
  PlotData data;
  data.title = "constant";
  data.frequency = parse_frequency("MS").value();
  data.start_us = kFirstOfJuly2015;
  data.history.assign(120, 5.0);
  data.median.assign(12, 5.0);
  const std::string years = forecast_svg(data).value();
  CHECK(years.find(">2016<") != std::string::npos);
  CHECK(years.find(">2017<") == std::string::npos);  // 132 months: a year needs 85 pixels
  CHECK(years.find(">2024<") != std::string::npos);

  data.history.assign(1, 0.0);
  data.median.clear();
  CHECK(forecast_svg(data).ok());
}

TEST_CASE("what cannot be drawn is told with its numbers") {
  const Series series = sine_series(60);
  PlotData data = plot_data(series, flat_forecast(series)).value();
  data.bands[0].low.pop_back();
  CHECK(forecast_svg(data).error().message() ==
        "forecast: plot of \"H1\": 23 95 % band values for a horizon of 24");

  data = plot_data(series, flat_forecast(series)).value();
  data.actual = {1.0};
  CHECK(forecast_svg(data).error().code() == Errc::invalid_argument);

  CHECK(forecast_svg(PlotData{}).error().message() ==
        "forecast: plot of \"\": there is no value to draw");
  CHECK(forecast_svg(data, {.width = 100}).error().code() == Errc::invalid_argument);

  Forecast no_median = flat_forecast(series);
  no_median.levels[4] = 0.51;
  CHECK(plot_data(series, no_median).error().code() == Errc::invalid_argument);
}

TEST_CASE("values that differ in the last bit are drawn as a constant") {
  for (const double level : {1.0, -1e9, 1e300}) {
    CAPTURE(level);
    Series series = sine_series(60);
    for (size_t i = 0; i < series.target.size(); ++i) {
      series.target[i] = i % 2 == 0 ? level : std::nextafter(level, 0.0);  // 0.9999999999999999
    }
    Forecast forecast = flat_forecast(series);
    std::fill(forecast.quantiles.begin(), forecast.quantiles.end(), level);
    const std::string svg = forecast_svg(plot_data(series, forecast).value()).value();
    CHECK(occurrences(svg, "<text") < 40);
    CHECK(occurrences(svg, "nan") == 0);
  }
}

}  // namespace
}  // namespace headrace::forecast
