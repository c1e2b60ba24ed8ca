//! The canvas of one chart: axes, lines, areas, bars and marks as SVG. It picks no data and no
//! colours; the style sheet has a colour per class.

use std::fmt::Write;

use super::{axis_scale::AxisScale, escape};

const WIDTH: f64 = 600.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 28.0;
/// Distance from the label of a mark to the next.
const MARK_ROW: f64 = 18.0;
/// Room for the letter of a flag.
const LETTER: f64 = 13.0;
/// A letter further from its line would belong to another one.
const FURTHEST_LETTER: f64 = 2.0 * LETTER;

/// A chart that is being drawn. Positions are 0..=1, from left to right and from bottom to top.
pub(super) struct ChartCanvas {
    height: f64,
    shapes: String,
}

impl ChartCanvas {
    pub(super) fn new(height: f64) -> ChartCanvas {
        ChartCanvas { height, shapes: String::new() }
    }

    fn x(place: f64) -> f64 {
        LEFT + place * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, place: f64) -> f64 {
        TOP + (1.0 - place) * (self.height - TOP - BOTTOM)
    }

    fn push_shape(&mut self, shape: std::fmt::Arguments<'_>) {
        self.shapes.write_fmt(shape).expect("writing to a string does not fail");
    }

    /// Grid lines with labels at the left.
    pub(super) fn vertical_axis(&mut self, scale: AxisScale, label: impl Fn(f64) -> String) {
        for tick in scale.ticks() {
            let y = self.y(scale.position(tick));
            let (right, label) = (WIDTH - RIGHT, escape(&label(tick)));
            self.push_shape(format_args!("<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>"));
            let (x, y) = (LEFT - 8.0, y + 4.0);
            self.push_shape(format_args!("<text class=\"tick end\" x=\"{x}\" y=\"{y:.1}\">{label}</text>"));
        }
    }

    /// The fraction of the frame's height that the labels of `marks` marks take at its top.
    pub(super) fn mark_labels_height(&self, marks: usize) -> f64 {
        (MARK_ROW * marks as f64) / (self.height - TOP - BOTTOM)
    }

    /// Labels below the frame.
    pub(super) fn horizontal_axis(&mut self, ticks: impl Iterator<Item = (f64, String)>) {
        let (base, below) = (self.y(0.0), self.height - 8.0);
        for (index, (place, label)) in ticks.enumerate() {
            let (x, label) = (ChartCanvas::x(place), escape(&label));
            self.push_shape(format_args!("<path class=\"axis\" d=\"M{x:.1} {base:.1}v4\"/>"));
            // A centred label at the edge would be cut off, or overlap the labels at the left.
            let (class, x) = match place {
                p if p > 0.985 => ("end", WIDTH - 2.0),
                p if p < 0.015 => ("start", x),
                _ => ("middle", x),
            };
            // A narrow page shows every other label, in larger letters.
            let odd = if index % 2 == 1 { " odd" } else { "" };
            self.push_shape(format_args!(
                "<text class=\"tick {class}{odd}\" x=\"{x:.1}\" y=\"{below:.1}\">{label}</text>"
            ));
        }
        let right = WIDTH - RIGHT;
        self.push_shape(format_args!("<path class=\"axis\" d=\"M{LEFT} {base:.1}H{right}\"/>"));
    }

    /// A line with gaps at the missing values.
    pub(super) fn line(&mut self, class: &str, points: &[(f64, Option<f64>)]) {
        let path = self.path(points);
        self.push_shape(format_args!("<path class=\"line {class}\" d=\"{path}\"/>"));
    }

    /// The area below a line.
    pub(super) fn area(&mut self, class: &str, points: &[(f64, Option<f64>)]) {
        let base = self.y(0.0);
        for stretch in points.split(|(_, y)| y.is_none()).filter(|stretch| !stretch.is_empty()) {
            let path = self.path(stretch);
            let (first, last) = (ChartCanvas::x(stretch[0].0), ChartCanvas::x(stretch[stretch.len() - 1].0));
            self.push_shape(format_args!(
                "<path class=\"area {class}\" d=\"{path}L{last:.1} {base:.1}L{first:.1} {base:.1}Z\"/>"
            ));
        }
    }

    fn path(&self, points: &[(f64, Option<f64>)]) -> String {
        let mut path = String::new();
        let mut pen_down = false;
        for (x, y) in points {
            if let Some(y) = y {
                let (command, x, y) = (if pen_down { 'L' } else { 'M' }, ChartCanvas::x(*x), self.y(*y));
                write!(path, "{command}{x:.1} {y:.1}").expect("writing to a string does not fail");
            }
            pen_down = y.is_some();
        }
        path
    }

    /// A bar. A value above zero is at least a pixel high, so that rare events are visible.
    pub(super) fn bar(&mut self, class: &str, from: f64, to: f64, height: f64, title: &str) {
        if height <= 0.0 {
            return;
        }
        let (left, right, base) = (ChartCanvas::x(from), ChartCanvas::x(to), self.y(0.0));
        let tall = (base - self.y(height)).max(1.5);
        let gap = if right - left > 4.0 { 1.0 } else { 0.0 };
        let (width, top, title) = ((right - left - gap).max(0.8), base - tall, escape(title));
        self.push_shape(format_args!(
            "<rect class=\"bar {class}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{tall:.1}\" rx=\"1\"><title>{title}</title></rect>"
        ));
    }

    /// A dashed vertical line with a label at its top; `row` keeps neighbouring labels apart.
    pub(super) fn mark(&mut self, place: f64, label: &str, row: usize) {
        let (x, base, top, label) = (ChartCanvas::x(place), self.y(0.0), self.y(1.0), escape(label));
        let text = top + 10.0 + MARK_ROW * row as f64;
        let (class, shift) = if place > 0.85 { ("end", -4.0) } else { ("", 4.0) };
        let labelled = x + shift;
        self.push_shape(format_args!("<path class=\"mark\" d=\"M{x:.1} {base:.1}V{top:.1}\"/>"));
        self.push_shape(format_args!(
            "<text class=\"label {class}\" x=\"{labelled:.1}\" y=\"{text:.1}\">{label}</text>"
        ));
    }

    /// A shaded background, for example of the warm-up.
    pub(super) fn shade(&mut self, from: f64, to: f64, label: &str) {
        let (left, right, top, base) = (ChartCanvas::x(from), ChartCanvas::x(to), self.y(1.0), self.y(0.0));
        let (width, height, text, middle) = (right - left, base - top, top + 14.0, (left + right) / 2.0);
        self.push_shape(format_args!(
            "<rect class=\"shade\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
        ));
        if width > 60.0 {
            self.push_shape(format_args!(
                "<text class=\"tick middle\" x=\"{middle:.1}\" y=\"{text:.1}\">{}</text>",
                escape(label)
            ));
        }
    }

    /// Labels at the left, with positions from the bottom.
    pub(super) fn labels(&mut self, ticks: impl IntoIterator<Item = (f64, String)>) {
        for (place, label) in ticks {
            let (x, y, label) = (LEFT - 8.0, self.y(place) + 4.0, escape(&label));
            self.push_shape(format_args!("<text class=\"tick end\" x=\"{x}\" y=\"{y:.1}\">{label}</text>"));
        }
    }

    /// A path whose unit is a cell of a grid, with `size` columns and rows, that ends at `end`.
    pub(super) fn cells(&mut self, class: &str, (columns, rows): (usize, usize), end: f64, path: &str) {
        let (left, top) = (ChartCanvas::x(0.0), self.y(1.0));
        let (across, down) = ((ChartCanvas::x(end) - left) / columns as f64, (self.y(0.0) - top) / rows as f64);
        self.push_shape(format_args!(
            "<path class=\"{class}\" transform=\"translate({left} {top}) scale({across:.4} {down:.4})\" d=\"{path}\"/>"
        ));
    }

    /// A letter at the top with a line down to the axis for each event, in order of time. Letters whose lines are
    /// close stand beside each other.
    pub(super) fn flags(&mut self, flags: impl Iterator<Item = (f64, char)>) {
        let (base, top) = (self.y(0.0), self.y(1.0));
        let (mut free, text) = (f64::MIN, top - 2.0);
        for (place, letter) in flags {
            let x = ChartCanvas::x(place);
            let at = if free - x > FURTHEST_LETTER { x } else { x.max(free) };
            free = at + LETTER;
            self.push_shape(format_args!(
                "<path class=\"mark\" d=\"M{x:.1} {base:.1}V{top:.1}\"/><text class=\"flag middle\" x=\"{at:.1}\" y=\"{text:.1}\">{letter}</text>"
            ));
        }
    }

    /// Text in place of an empty chart.
    pub(super) fn placeholder(&mut self, text: &str) {
        let (x, y) = (ChartCanvas::x(0.5), self.y(0.5));
        self.push_shape(format_args!(
            "<text class=\"nothing middle\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>",
            escape(text)
        ));
    }

    /// The finished drawing. `show` names the series that the page's script shows under the
    /// pointer.
    pub(super) fn finish(self, label: &str, show: &str) -> String {
        let (right, bottom) = (WIDTH - RIGHT, self.y(0.0));
        let ChartCanvas { height, shapes } = self;
        format!(
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\" data-show=\"{}\" data-left=\"{LEFT}\" \
             data-right=\"{right}\" data-top=\"{TOP}\" data-bottom=\"{bottom:.1}\">{shapes}</svg>",
            escape(label),
            escape(show),
        )
    }
}

/// A line without axes, for table cells.
pub(super) fn sparkline(values: &[f64]) -> String {
    let largest = values.iter().copied().fold(0.0, f64::max);
    if values.len() < 2 || largest <= 0.0 {
        return String::new();
    }
    let step = 96.0 / (values.len() - 1) as f64;
    let points = values.iter().enumerate().map(|(i, value)| {
        let command = if i == 0 { 'M' } else { 'L' };
        format!("{command}{:.1} {:.1}", 2.0 + i as f64 * step, 20.0 - value / largest * 18.0)
    });
    format!(
        "<svg class=\"spark\" viewBox=\"0 0 100 22\" aria-hidden=\"true\"><path class=\"line p99\" d=\"{}\"/></svg>",
        points.collect::<String>()
    )
}
