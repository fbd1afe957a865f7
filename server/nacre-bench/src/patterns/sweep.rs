//! Throughput and average latency by number of clients, as SVG: one panel each, with one curve per workload.

use std::fmt::Write;

/// Returns the value of a point that a panel shows.
type Measure = fn(&Point) -> f64;

/// One run of a workload.
pub struct Point {
    /// The workload.
    pub workload: String,
    /// Number of concurrent clients.
    pub threads: usize,
    /// Transactions per second.
    pub throughput: f64,
    /// Average latency in milliseconds.
    pub latency_ms: f64,
}

const COLOURS: [&str; 8] =
    ["#1b6ca8", "#d1495b", "#2e933c", "#7b4fa3", "#e08e0b", "#444444", "#0b8f8c", "#a34f7b"];
/// The frame of a panel, in pixels.
const LEFT: f64 = 80.0;
const TOP: f64 = 30.0;
const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 260.0;
/// Number of horizontal lines in a panel.
const LINES: usize = 5;
/// Height of a line of the legend.
const LINE: f64 = 16.0;

/// Draws `points`; several runs of one workload with the same number of clients are averaged.
pub fn svg(points: &[Point]) -> String {
    let mut workloads: Vec<&str> = Vec::new();
    for point in points {
        if !workloads.contains(&point.workload.as_str()) {
            workloads.push(&point.workload);
        }
    }
    let legend = TOP + HEIGHT + 50.0;
    let (width, height) = (2.0 * (LEFT + WIDTH) + 40.0, legend + LINE * workloads.len() as f64);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n"
    );
    let panels: [(&str, Measure); 2] = [
        ("transactions/s", |point| point.throughput),
        ("average latency, ms", |point| point.latency_ms),
    ];
    for (panel, (title, value)) in panels.into_iter().enumerate() {
        let left = LEFT + panel as f64 * (LEFT + WIDTH);
        add_panel(&mut svg, left, title, points, &workloads, value);
    }
    for (place, workload) in workloads.iter().enumerate() {
        let (at, colour) = (legend + LINE * place as f64, COLOURS[place % COLOURS.len()]);
        let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{at}\" fill=\"{colour}\">{workload}</text>");
    }
    svg + "</svg>\n"
}

fn add_panel(
    svg: &mut String,
    left: f64,
    title: &str,
    points: &[Point],
    workloads: &[&str],
    value: fn(&Point) -> f64,
) {
    let most = points.iter().map(value).fold(0.0, f64::max).max(1e-9);
    let threads_max = points.iter().map(|point| point.threads).max().unwrap_or(1).max(2) as f64;
    let x = |threads: usize| left + WIDTH * threads as f64 / threads_max;
    let y = |value: f64| TOP + HEIGHT * (1.0 - value / most);
    let middle = left + WIDTH / 2.0;
    let mut add = |element: String| svg.push_str(&(element + "\n"));
    add(format!("<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{title}</text>", TOP - 12.0));
    for line in 0..=LINES {
        let at = most * line as f64 / LINES as f64;
        add(format!("<path d=\"M{left} {:.1}h{WIDTH}\" stroke=\"#ccc\"/>", y(at)));
        let label = if most < 10.0 { format!("{at:.2}") } else { format!("{at:.0}") };
        let (beside, height) = (left - 6.0, y(at) + 4.0);
        add(format!("<text x=\"{beside}\" y=\"{height:.1}\" text-anchor=\"end\">{label}</text>"));
    }
    let mut counts: Vec<usize> = points.iter().map(|point| point.threads).collect();
    counts.sort_unstable();
    counts.dedup();
    for threads in &counts {
        let below = TOP + HEIGHT + LINE;
        let at = x(*threads);
        add(format!("<text x=\"{at:.1}\" y=\"{below}\" text-anchor=\"middle\">{threads}</text>"));
    }
    let below = TOP + HEIGHT + 2.0 * LINE;
    add(format!("<text x=\"{middle}\" y=\"{below}\" text-anchor=\"middle\">clients</text>"));
    for (place, workload) in workloads.iter().enumerate() {
        let mut curve = String::new();
        for threads in &counts {
            let of_run = |point: &&Point| point.workload == *workload && point.threads == *threads;
            let found: Vec<f64> = points.iter().filter(of_run).map(value).collect();
            if !found.is_empty() {
                let average = found.iter().sum::<f64>() / found.len() as f64;
                let _ = write!(curve, "{:.1},{:.1} ", x(*threads), y(average));
            }
        }
        let colour = COLOURS[place % COLOURS.len()];
        add(format!(
            "<polyline points=\"{curve}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_workload_has_a_curve_in_both_panels() {
        let point = |workload: &str, threads, throughput, latency_ms| Point {
            workload: workload.to_owned(),
            threads,
            throughput,
            latency_ms,
        };
        let svg = svg(&[
            point("a", 10, 100.0, 4.0),
            point("a", 20, 300.0, 1.0),
            point("a", 20, 100.0, 3.0),
            point("b", 10, 50.0, 1.0),
        ]);
        let curves: Vec<&str> = svg
            .split("points=\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap().trim())
            .collect();
        // 200 of at most 300 is two thirds of the height; the second panel is next to the first.
        let y = |share: f64| TOP + HEIGHT * (1.0 - share);
        let expected = [
            format!("270.0,{:.1} 460.0,{:.1}", y(1.0 / 3.0), y(2.0 / 3.0)),
            format!("270.0,{:.1}", y(1.0 / 6.0)),
            format!("730.0,{:.1} 920.0,{:.1}", y(1.0), y(0.5)),
            format!("730.0,{:.1}", y(0.25)),
        ];
        assert_eq!(curves, expected);
    }
}
