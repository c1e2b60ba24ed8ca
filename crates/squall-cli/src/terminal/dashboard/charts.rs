//! The charts of the dashboard: the load against the plan, and the response times.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Style},
    symbols::Marker,
    text::{Line, Span},
    widgets::{Axis, Chart, Dataset, GraphType},
};
use squall_model::{LoadModel, Profile};
use squall_report::{LiveRun, LiveSecond};
use std::time::Duration;

use super::{DashboardData, MAX_SPAN_S, palette, panel, seconds};
use crate::terminal::format::{clock, rate, time};

/// Length of the chart of a run of unknown duration.
const MIN_SPAN_S: u32 = 20;
/// A chart narrower than this has two labels on its time axis instead of three.
const MIN_THREE_LABEL_WIDTH: u16 = 32;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, data: &DashboardData<'_>) {
    let [left, right] = Layout::horizontal([Constraint::Ratio(1, 2); 2]).spacing(1).areas(area);
    draw_rate(frame, left, data);
    draw_times(frame, right, data);
}

/// The visible part of the timeline, and its bounds in seconds.
fn visible_timeline<'a>(data: &DashboardData<'a>) -> (&'a [LiveSecond], [f64; 2]) {
    let timeline = &data.run.seconds[data.run.seconds.len().saturating_sub(MAX_SPAN_S as usize)..];
    let from = timeline.first().map_or(0, |second| second.t_s.saturating_sub(1));
    let until = timeline.last().map_or(0, |second| second.t_s);
    let to = (from + planned_s(data.run).clamp(1, MAX_SPAN_S)).max(until);
    (timeline, [f64::from(from), f64::from(to)])
}

/// The planned length of the run in seconds, rounded up.
fn planned_s(run: &LiveRun) -> u32 {
    let (whole, load) = (seconds(run.state.planned_end_s), &run.plan.load);
    let limited = match (&load.model, load.iterations) {
        (_, None) => None,
        (LoadModel::Open { rate, .. }, Some(n)) => rate.time_of_area(n as f64),
        // The response times decide how long the iterations take.
        (LoadModel::Closed { .. }, Some(_)) if whole > Duration::from_secs(MAX_SPAN_S.into()) => {
            Some(Duration::from_secs(MIN_SPAN_S.into()))
        }
        (LoadModel::Closed { .. }, Some(_)) => None,
    };
    limited.unwrap_or(whole).as_secs_f64().ceil() as u32
}

fn draw_rate(frame: &mut Frame<'_>, area: Rect, data: &DashboardData<'_>) {
    let (seconds, bounds) = visible_timeline(data);
    let plan = &data.run.plan;
    let open = matches!(plan.load.model, LoadModel::Open { .. });
    // An open plan sets iterations. An iteration may send several requests, so requests would not
    // compare.
    let count = |second: &LiveSecond| if open { second.iterations } else { second.requests } as f64;
    let value = |second: &LiveSecond| count(second) / second.length_s;
    // The warm-up is not counted; a line at 0 would look as if nothing was sent.
    let counted = |second: &&LiveSecond| f64::from(second.t_s) > plan.load.warm_up.as_secs_f64();
    let counted = seconds.iter().filter(counted);
    let points: Vec<_> = counted.map(|second| (f64::from(second.t_s) - 0.5, value(second))).collect();
    let profile = plan.load.model.profile();
    let plan_at = |t: f64| (t, profile.level(Duration::from_secs_f64(t)));
    // The level at the very end is 0, so the line stops just before it.
    let end = profile.duration().as_secs_f64().min(bounds[1]) * 0.9999;
    let planned: Vec<_> = match open {
        true => (0..=200).map(|i| plan_at(bounds[0] + (end - bounds[0]) * f64::from(i) / 200.0)).collect(),
        false => Vec::new(),
    };
    let highest = points.iter().chain(&planned).map(|(_, y)| *y).fold(1.0, f64::max);
    let now = points.last().map_or(0.0, |(_, y)| *y);
    let label = Span::styled(if open { " starts/s " } else { " requests/s " }, Style::new().bold());
    let value = Span::styled(rate(now), Style::new().fg(palette::ACCENT).bold());
    let asked = seconds.last().filter(|_| open).map(|second| planned_rate(profile, second));
    let load = Span::styled(load_now(data, asked), Style::new().fg(palette::DIM));
    let title = title(area, [label.clone(), value.clone(), load], [label, value, Span::raw(" ")]);
    let series = [(planned.as_slice(), palette::PLAN), (points.as_slice(), palette::ACCENT)];
    draw_chart(frame, area, title, &series, (bounds, highest, rate));
}

/// The starts a second that an open load asked for in `second`. The level at its end would look like a
/// rate that was missed, while a ramp rises.
fn planned_rate(profile: &Profile, second: &LiveSecond) -> f64 {
    let begin = f64::from(second.t_s.saturating_sub(1));
    let starts_by = |t: f64| profile.area(Duration::from_secs_f64(t));
    (starts_by(begin + second.length_s) - starts_by(begin)) / second.length_s
}

/// The load beside the rate; `asked` is that of an open load in the latest second.
fn load_now(data: &DashboardData<'_>, asked: Option<f64>) -> String {
    let level = data.run.state.level;
    match (&data.run.plan.load.model, data.run.is_paused()) {
        (_, true) => " (paused) ".to_owned(),
        (LoadModel::Open { .. }, false) => format!(" of {} planned ", rate(asked.unwrap_or(level))),
        (LoadModel::Closed { .. }, false) => format!(" from {} users ", rate(level)),
    }
}

fn draw_times(frame: &mut Frame<'_>, area: Rect, data: &DashboardData<'_>) {
    let (seconds, bounds) = visible_timeline(data);
    let measured = || seconds.iter().filter(|second| second.requests > 0);
    let points = |value: fn(&LiveSecond) -> f64| -> Vec<_> {
        measured().map(|second| (f64::from(second.t_s) - 0.5, value(second) * 1e6)).collect()
    };
    let (p50, p99) = (points(|second| second.p50_ms), points(|second| second.p99_ms));
    let highest = p99.iter().map(|(_, y)| *y).fold(1e3, f64::max);
    let last = |points: &[(f64, f64)]| points.last().map_or("–".to_owned(), |(_, y)| time(*y));
    let fast = Span::styled(format!("p50 {}  ", last(&p50)), Style::new().fg(palette::FAST).bold());
    let slow = Span::styled(format!("p99 {} ", last(&p99)), Style::new().fg(palette::SLOW).bold());
    let label = Span::styled(" response time ", Style::new().bold());
    let title = title(area, [label, fast.clone(), slow.clone()], [Span::raw(" "), fast, slow]);
    let series = [(p99.as_slice(), palette::SLOW), (p50.as_slice(), palette::FAST)];
    draw_chart(frame, area, title, &series, (bounds, highest, time));
}

/// The long title if it fits, otherwise the short one.
fn title<'a>(area: Rect, long: [Span<'a>; 3], short: [Span<'a>; 3]) -> Line<'a> {
    let long = Line::from(long.to_vec());
    if long.width() + 2 <= usize::from(area.width) { long } else { Line::from(short.to_vec()) }
}

type ChartScale = ([f64; 2], f64, fn(f64) -> String);

fn draw_chart<'a>(
    frame: &mut Frame<'_>,
    area: Rect,
    title: Line<'_>,
    series: &[(&'a [(f64, f64)], Color)],
    scale: ChartScale,
) {
    let (x_bounds, highest, label) = scale;
    let top = round_up(highest * 1.05);
    let dim = Style::new().fg(palette::DIM);
    let dataset = |&(points, colour): &(&'a [(f64, f64)], Color)| {
        let style = Style::new().fg(colour);
        Dataset::default().marker(Marker::Braille).graph_type(GraphType::Line).style(style).data(points)
    };
    let datasets = series.iter().map(dataset).collect();
    let seconds = |at: f64| Span::raw(clock(Duration::from_secs_f64(at)));
    let mut x_labels = vec![seconds(x_bounds[0]), seconds((x_bounds[0] + x_bounds[1]) / 2.0), seconds(x_bounds[1])];
    if area.width < MIN_THREE_LABEL_WIDTH {
        x_labels.remove(1);
    }
    let y_labels = vec![Span::raw("0"), Span::raw(label(top / 2.0)), Span::raw(label(top))];
    let chart = Chart::new(datasets)
        .block(panel(title))
        .legend_position(None)
        .x_axis(Axis::default().bounds(x_bounds).labels(x_labels).style(dim))
        .y_axis(Axis::default().bounds([0.0, top]).labels(y_labels).style(dim));
    frame.render_widget(chart, area);
}

/// Rounds up to a number that is easy to read: 1, 1.5, 2, 3, 4, 5, 6 or 8 times a power of ten.
fn round_up(value: f64) -> f64 {
    let tens = 10f64.powf(value.log10().floor());
    let steps = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    steps.map(|step| step * tens).into_iter().find(|label| *label >= value).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::{planned_rate, planned_s, round_up};
    use crate::terminal::dashboard::tests::{live_run, plan};
    use squall_model::{Arrivals, Load, LoadModel, Pause, Profile};
    use std::time::Duration;

    #[test]
    fn time_axis_is_as_long_as_the_planned_run() {
        let constant = |s: u64| Profile::constant(50.0, Duration::from_millis(s * 100)).expect("a profile");
        let open = |tenths: u64| LoadModel::Open { rate: constant(tenths), arrivals: Arrivals::Even };
        let closed = |tenths: u64| LoadModel::Closed { users: constant(tenths), pause: Pause::NONE };
        let check = |model: LoadModel, iterations: Option<u64>, expected: u32| {
            let load = Load { model, iterations, warm_up: Duration::ZERO };
            let mut plan = plan();
            plan.load = load;
            assert_eq!(planned_s(&live_run(&plan, 0)), expected);
        };
        check(open(80), None, 8);
        check(closed(25), None, 3);
        check(open(1_000_000), Some(500), 10);
        check(closed(1_000_000), Some(500), 20);
        check(closed(300), Some(500), 30);
    }

    #[test]
    fn planned_rate_of_a_rising_load_is_that_of_the_whole_second() {
        let ramp = Profile::ramp(50.0, Duration::from_secs(10), Duration::from_secs(30)).expect("a ramp");
        let plan = plan();
        let planned = |seconds: u32| {
            let run = live_run(&plan, seconds);
            planned_rate(&ramp, run.seconds.last().expect("a second"))
        };
        assert_eq!([planned(4), planned(12)].map(f64::round), [18.0, 50.0]);
    }

    #[test]
    fn axis_maximum_is_a_round_number() {
        assert_eq!([1.0, 1.2, 41.0, 167.0, 83e6].map(round_up), [1.0, 1.5, 50.0, 200.0, 100e6]);
    }
}
