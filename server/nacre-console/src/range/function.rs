//! Functions over the measurements of a metric, with the names and meanings of Prometheus.

/// How the nodes keep a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// As its value.
    Gauge,
    /// As its growth per second. The count itself is not kept.
    Rate,
}

/// A function over the measurements in the window before a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Window {
    Rate,
    LastRate,
    Increase,
    Mean,
    Least,
    Most,
    Slope,
    Difference,
    LastDifference,
}

/// A function over values of the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aggregate {
    Sum,
    Least,
    Most,
    Mean,
    Count,
}

/// A function that a request applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Over(Window),
    Across(Aggregate),
    /// A percentile of a histogram.
    Percentile,
}

impl Function {
    /// Returns the function with that name.
    pub fn named(name: &str) -> Option<Function> {
        let over = |window| Some(Function::Over(window));
        match name {
            "rate" => over(Window::Rate),
            "irate" => over(Window::LastRate),
            "increase" => over(Window::Increase),
            "avg_over_time" => over(Window::Mean),
            "min_over_time" => over(Window::Least),
            "max_over_time" => over(Window::Most),
            "deriv" => over(Window::Slope),
            "delta" => over(Window::Difference),
            "idelta" => over(Window::LastDifference),
            "count" => Some(Function::Across(Aggregate::Count)),
            _ => match Aggregate::named(name) {
                Some(aggregate) => Some(Function::Across(aggregate)),
                None => {
                    let percent: u8 = name.strip_prefix('p')?.parse().ok()?;
                    (1..=100).contains(&percent).then_some(Function::Percentile)
                }
            },
        }
    }
}

impl Aggregate {
    /// Returns the function with that name, which nodes can be combined with.
    pub fn named(name: &str) -> Option<Aggregate> {
        match name {
            "sum" => Some(Aggregate::Sum),
            "min" => Some(Aggregate::Least),
            "max" => Some(Aggregate::Most),
            "avg" => Some(Aggregate::Mean),
            _ => None,
        }
    }

    /// Returns the result over values, of which there is at least one.
    pub fn of(self, values: &[f64]) -> f64 {
        let (sum, count) = (values.iter().sum::<f64>(), values.len() as f64);
        match self {
            Aggregate::Sum => sum,
            Aggregate::Least => values.iter().copied().fold(f64::INFINITY, f64::min),
            Aggregate::Most => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            Aggregate::Mean => sum / count,
            Aggregate::Count => count,
        }
    }
}

impl Kind {
    /// Returns the reason why the nodes cannot compute the result; `None` if they can.
    pub fn objection(self, function: Option<Window>) -> Option<&'static str> {
        let of_growth = [Window::Rate, Window::LastRate, Window::Increase];
        match self {
            Kind::Rate if !function.is_some_and(|function| of_growth.contains(&function)) => {
                Some("only the growth is kept: apply rate, irate or increase")
            }
            Kind::Rate | Kind::Gauge => None,
        }
    }

    /// Returns the value at `at_s` from measurements in the order of their times in seconds. Without a function, it is
    /// the last measurement that is younger than `window_s`.
    pub fn value(
        self,
        samples: &[(u64, f64)],
        function: Option<Window>,
        at_s: u64,
        window_s: u64,
    ) -> Option<f64> {
        let end = samples.partition_point(|(time, _)| *time <= at_s);
        let begin = samples.partition_point(|(time, _)| time + window_s <= at_s);
        let samples = samples.get(begin..end)?;
        let (last_s, last) = *samples.last()?;
        let Some(function) = function else { return Some(last) };
        if self == Kind::Rate {
            let mean = Aggregate::Mean.of(&values(samples));
            return match function {
                Window::Rate => Some(mean),
                Window::LastRate => Some(last),
                Window::Increase => Some(mean * window_s as f64),
                _ => None,
            };
        }
        let (first_s, first) = samples[0];
        let before = samples.len().checked_sub(2).map(|index| samples[index]);
        match function {
            Window::Mean => Some(Aggregate::Mean.of(&values(samples))),
            Window::Least => Some(Aggregate::Least.of(&values(samples))),
            Window::Most => Some(Aggregate::Most.of(&values(samples))),
            Window::Slope => slope(samples),
            // The others compare two measurements.
            Window::Difference => before.map(|_| last - first),
            Window::LastDifference => before.map(|(_, before)| last - before),
            Window::Increase => before.map(|_| growth(samples)),
            Window::Rate => before.map(|_| growth(samples) / (last_s - first_s) as f64),
            Window::LastRate => {
                let (before_s, _) = before?;
                let last_two = &samples[samples.len() - 2..];
                Some(growth(last_two) / (last_s - before_s) as f64)
            }
        }
    }
}

fn values(samples: &[(u64, f64)]) -> Vec<f64> {
    samples.iter().map(|(_, value)| *value).collect()
}

/// Returns the growth of a count. If it falls, it began again at 0.
fn growth(samples: &[(u64, f64)]) -> f64 {
    let growth = |pair: &[(u64, f64)]| {
        let [(_, before), (_, after)] = [pair[0], pair[1]];
        if after >= before { after - before } else { after }
    };
    samples.windows(2).map(growth).sum()
}

/// Returns the slope per second of the line that fits the measurements best.
fn slope(samples: &[(u64, f64)]) -> Option<f64> {
    let first_s = samples.first()?.0;
    let times: Vec<f64> = samples.iter().map(|(time, _)| (time - first_s) as f64).collect();
    let values = values(samples);
    let (mean_time, mean_value) = (Aggregate::Mean.of(&times), Aggregate::Mean.of(&values));
    let pairs = times.iter().zip(&values);
    let both: f64 = pairs.map(|(time, value)| (time - mean_time) * (value - mean_value)).sum();
    let spread: f64 = times.iter().map(|time| (time - mean_time).powi(2)).sum();
    (spread > 0.0).then_some(both / spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLES: [(u64, f64); 4] = [(100, 1.0), (110, 3.0), (120, 2.0), (130, 6.0)];

    fn gauge(name: &str, at_s: u64, window_s: u64) -> Option<f64> {
        let function = match Function::named(name) {
            Some(Function::Over(window)) => Some(window),
            _ => None,
        };
        Kind::Gauge.value(&SAMPLES, function, at_s, window_s)
    }

    #[test]
    fn a_function_takes_the_measurements_in_its_window() {
        assert_eq!(gauge("", 125, 30), Some(2.0));
        assert_eq!(gauge("", 99, 30), None);
        assert_eq!(gauge("", 161, 30), None);
        for (name, expected) in [
            ("avg_over_time", 11.0 / 3.0),
            ("min_over_time", 2.0),
            ("max_over_time", 6.0),
            ("delta", 3.0),
            ("idelta", 4.0),
            ("increase", 2.0 + 4.0),
            ("rate", 6.0 / 20.0),
            ("irate", 4.0 / 10.0),
            ("deriv", 0.15),
        ] {
            let value = gauge(name, 130, 30).unwrap();
            assert!((value - expected).abs() < 1e-9, "{name}: {value}");
        }
        assert_eq!(gauge("rate", 130, 5), None, "one measurement has no growth");
        assert_eq!(gauge("deriv", 130, 5), None);
    }

    #[test]
    fn a_growth_that_is_kept_is_the_rate() {
        let value = |name: &str| match Function::named(name) {
            Some(Function::Over(window)) => Kind::Rate.value(&SAMPLES, Some(window), 130, 40),
            _ => None,
        };
        assert_eq!(value("rate"), Some(3.0));
        assert_eq!(value("irate"), Some(6.0));
        assert_eq!(value("increase"), Some(120.0));
        assert!(Kind::Rate.objection(None).is_some());
        assert!(Kind::Rate.objection(Some(Window::Mean)).is_some());
        assert_eq!(Kind::Rate.objection(Some(Window::LastRate)), None);
        assert_eq!(Kind::Gauge.objection(None), None);
    }

    #[test]
    fn functions_have_the_names_of_couchbase() {
        assert_eq!(Function::named("p99"), Some(Function::Percentile));
        assert_eq!(Function::named("sum"), Some(Function::Across(Aggregate::Sum)));
        for name in ["", "p", "p0", "p101", "median", "Sum"] {
            assert_eq!(Function::named(name), None, "{name}");
        }
        let values = [1.0, 4.0, 1.0];
        let all = [Aggregate::Sum, Aggregate::Least, Aggregate::Most, Aggregate::Mean];
        assert_eq!(all.map(|aggregate| aggregate.of(&values)), [6.0, 1.0, 4.0, 2.0]);
        assert_eq!(Aggregate::Count.of(&values), 3.0);
    }
}
