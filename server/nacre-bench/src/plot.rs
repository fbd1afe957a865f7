//! Latency by percentile as SVG: one curve per measurement, with logarithmic axes so that tails are
//! visible.

use std::fmt::Write;

/// The quantiles of the curves, and their labels.
pub const QUANTILES: [(f64, &str); 7] = [
    (0.0, "min"),
    (0.5, "50 %"),
    (0.9, "90 %"),
    (0.99, "99 %"),
    (0.999, "99.9 %"),
    (0.9999, "99.99 %"),
    (1.0, "max"),
];

/// Latencies of one measurement.
pub struct Curve {
    /// Label of the measurement.
    pub label: String,
    /// Latency in microseconds at each of [`QUANTILES`].
    pub us: [f64; QUANTILES.len()],
}

const COLOURS: [&str; 6] = ["#1b6ca8", "#d1495b", "#2e933c", "#7b4fa3", "#e08e0b", "#444444"];
/// The frame of the curves, in pixels.
const LEFT: f64 = 70.0;
const TOP: f64 = 20.0;
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 360.0;
/// Height of a line of the legend.
const LINE: f64 = 16.0;

/// Draws `curves`, with a horizontal line at each power of ten.
pub fn svg(curves: &[Curve]) -> String {
    let all = || curves.iter().flat_map(|curve| curve.us).map(|us| us.max(0.1).log10());
    let bottom = all().fold(f64::INFINITY, f64::min).min(1.0).floor();
    let top = all().fold(bottom + 1.0, f64::max).ceil();
    let x = |index: usize| LEFT + WIDTH * index as f64 / (QUANTILES.len() - 1) as f64;
    let y = |log: f64| TOP + HEIGHT * (top - log) / (top - bottom);
    let legend = TOP + HEIGHT + 50.0;
    let height = legend + LINE * curves.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n",
        LEFT + WIDTH + 40.0
    );
    let mut add = |element: String| svg.push_str(&(element + "\n"));
    for power in bottom as i32..=top as i32 {
        let (at, us) = (y(f64::from(power)), 10f64.powi(power));
        add(format!("<path d=\"M{LEFT} {at}h{WIDTH}\" stroke=\"#ccc\"/>"));
        add(format!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{us} us</text>",
            LEFT - 6.0,
            at + 4.0
        ));
    }
    for (index, (_, name)) in QUANTILES.iter().enumerate() {
        let (at, below) = (x(index), TOP + HEIGHT + LINE);
        add(format!("<text x=\"{at}\" y=\"{below}\" text-anchor=\"middle\">{name}</text>"));
    }
    for (index, curve) in curves.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let points = curve.us.iter().enumerate().fold(String::new(), |mut points, (at, us)| {
            let _ = write!(points, "{:.1},{:.1} ", x(at), y(us.max(0.1).log10()));
            points
        });
        add(format!(
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
        ));
        let at = legend + LINE * index as f64;
        add(format!("<text x=\"{LEFT}\" y=\"{at}\" fill=\"{colour}\">{}</text>", curve.label));
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slower_quantile_is_drawn_higher() {
        let us = [10.0, 20.0, 30.0, 100.0, 1000.0, 5000.0, 90_000.0];
        let svg = svg(&[Curve { label: "16 x 16".into(), us }]);
        let points = svg.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
        let heights: Vec<f64> = points
            .split_whitespace()
            .map(|point| point.split_once(',').unwrap().1.parse().unwrap())
            .collect();
        assert_eq!(heights.len(), QUANTILES.len());
        assert!(heights.is_sorted_by(|a, b| a > b), "{heights:?}");
        assert!(heights.iter().all(|at| (TOP..=TOP + HEIGHT).contains(at)), "{heights:?}");
        assert!(svg.contains("100000 us") && svg.contains("16 x 16"));
    }
}
